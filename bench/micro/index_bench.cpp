// The kernels of rows chosen by an index, each alone: nanoseconds a page, and share of the machine's memory
// bandwidth, over pages that no cache holds.
//
//   index_bench [-t THREADS] [--heads H] [--kv-heads K] [--head-dim D] [--tokens N] [--layers L] [--repeats R]
//
// Pages of nested4 keys and nested3 values lie as in the store; candidates are 15 % of the rows, kept rows
// 7.5 %, drawn at random. `lines` counts the cache lines that a kernel cannot avoid touching.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/memory.h"
#include "base/team.h"
#include "format/code_catalogue.h"
#include "format/lloyd_max.h"
#include "kernels/ops.h"

namespace {

using namespace quire;
using Clock = std::chrono::steady_clock;
using Keys = Turbo<4>;
using Values = Turbo<3>;

constexpr size_t kTokens = 64;
constexpr size_t kChunk = 16;                          // pages a call
constexpr size_t kColdBytes = size_t{1200} << 20;      // of all layers together
constexpr size_t kSpare = 256;

struct Options {
  int n_threads = 2;
  size_t n_heads = 32;
  size_t n_kv_heads = 8;
  size_t head_dim = 128;
  size_t n_tokens = 32768;
  size_t n_layers = 0;  // 0: as many as no cache holds
  int repeats = 9;
};

uint32_t draw(uint64_t& state) {
  state = state * 6364136223846793005ull + 1442695040888963407ull;
  return static_cast<uint32_t>(state >> 33);
}

// One KV head of one layer: its pages, and what is read of them.
struct Head {
  std::vector<const uint8_t*> index;
  std::vector<KeyPage> keys;
  std::vector<const uint8_t*> values;
  std::vector<std::vector<uint16_t>> rows;   // [chunk] candidates
  std::vector<std::vector<uint64_t>> kept;   // [chunk][tile]
};

class Bench {
 public:
  explicit Bench(const Options& options) : options_(options), team_(options.n_threads) {
    const int dim = static_cast<int>(options.head_dim);
    const size_t key_bytes = static_cast<size_t>(Keys::key_page_bytes(dim));
    const size_t head_bytes = key_bytes + static_cast<size_t>(Values::value_page_bytes(dim));
    const size_t page_bytes = (options.n_kv_heads * head_bytes + 63) / 64 * 64;
    n_pages_ = options.n_tokens / kTokens;
    n_layers_ = options.n_layers > 0 ? options.n_layers : std::max<size_t>(2, kColdBytes / (n_pages_ * page_bytes));
    memory_ = Memory(n_layers_ * n_pages_ * page_bytes + kSpare);
    auto* words = memory_.as<uint32_t>();
    uint64_t state = 1;
    for (size_t i = 0; i < memory_.size_bytes() / 4; ++i) words[i] = draw(state) & 0x3bff3bffu;  // norms below 1
    for (size_t layer = 0; layer < n_layers_; ++layer) {
      for (size_t h = 0; h < options.n_kv_heads; ++h) {
        Head head;
        for (size_t page = 0; page < n_pages_; ++page) {
          const auto* data = memory_.as<uint8_t>() + (layer * n_pages_ + page) * page_bytes + h * head_bytes;
          head.index.push_back(data);
          head.keys.push_back({data, data + Keys::index_page_bytes(dim)});
          head.values.push_back(data + key_bytes);
        }
        for (size_t first = 0; first < n_pages_; first += kChunk) choose(head, state);
        heads_.push_back(std::move(head));
      }
    }
    queries_.resize(group() * options.head_dim);
    for (float& x : queries_) x = static_cast<float>(draw(state) % 1000) / 1000 - 0.5f;
    tables_.resize(group());
    for (size_t i = 0; i < group(); ++i) {
      ops().index.sign_tables(queries_.data() + i * options.head_dim, dim, &tables_[i]);
    }
    key_book_ = make_codebook(Keys::kCodebook, dim);
    value_book_ = make_codebook(Values::kCodebook, dim);
    bandwidth_ = read_bandwidth();
  }

  void run() {
    std::printf("%s, %d threads, %zu query / %zu KV heads of %zu, %zu tokens; reads %.1f GB/s\n", ops().name,
                options_.n_threads, options_.n_heads, options_.n_kv_heads, options_.head_dim, options_.n_tokens,
                bandwidth_);
    std::printf("%-14s %14s %12s %12s %10s %8s\n", "kernel", "ns a page", "B a page", "lines", "GB/s", "share");
    const int dim = static_cast<int>(options_.head_dim);
    const size_t index_bytes = static_cast<size_t>(Keys::index_page_bytes(dim));
    const size_t ld = n_pages_ * kTokens;
    std::vector<std::vector<int16_t>> estimates(static_cast<size_t>(options_.n_threads));
    for (auto& own : estimates) own.resize(group() * ld);
    measure("estimate", index_bytes, [&](Head& head, size_t rank) {
      for (size_t p = 0; p < n_pages_; p += kChunk) {
        ops().index.estimate(tables_.data(), static_cast<int>(group()), dim, head.index.data() + p,
                             static_cast<int>(std::min(kChunk, n_pages_ - p)), static_cast<int>(n_pages_ - p), Keys::index_norms_offset(dim),
                             estimates[rank].data() + p * kTokens, ld);
      }
    });
    std::vector<std::vector<float>> scores(static_cast<size_t>(options_.n_threads));
    for (auto& own : scores) own.resize(group() * kChunk * kTokens);
    const size_t key_row = static_cast<size_t>(Keys::key_planes_bytes(dim));
    const size_t value_row = static_cast<size_t>(Values::value_row_bytes(dim));
    measure("score_rows", index_bytes + kTokens * 15 / 100 * key_row, [&](Head& head, size_t rank) {
      for (size_t c = 0; c < head.rows.size(); ++c) {
        ops().codes.score_rows[static_cast<size_t>(Code::kNested4)](
            key_book_, queries_.data(), static_cast<int>(group()), dim,
            {head.keys.data() + c * kChunk, head.rows[c].data(), static_cast<int>(head.rows[c].size())},
            scores[rank].data(), {});
      }
    });
    std::vector<float> ones(group() * kTokens, 1.0f), correction(group(), 1.0f);
    std::vector<std::vector<float>> out(static_cast<size_t>(options_.n_threads));
    for (auto& own : out) own.resize(group() * options_.head_dim);
    measure("accumulate_rows", kTokens * 75 / 1000 * value_row, [&](Head& head, size_t rank) {
      for (size_t c = 0; c < head.rows.size(); ++c) {
        const std::vector<uint16_t>& rows = head.rows[c];
        for (size_t tile = 0; tile < head.kept[c].size(); ++tile) {
          const size_t n = std::min(kTokens, rows.size() - tile * kTokens);
          size_t nc = c, nt = tile + 1;
          if (nt == head.kept[c].size()) nc++, nt = 0;
          RowRefs next{}; uint64_t nk = 0;
          if (nc < head.rows.size()) { next = {head.values.data() + nc * kChunk, head.rows[nc].data() + nt * kTokens, 64}; nk = head.kept[nc][nt]; }
          ops().codes.accumulate_rows[static_cast<size_t>(Code::kNested3)](
              value_book_, ones.data(), correction.data(),
              {head.values.data() + c * kChunk, rows.data() + tile * kTokens, static_cast<int>(n)},
              head.kept[c][tile], static_cast<int>(group()), dim, out[rank].data(), next, nk);
        }
      }
    });
  }

 private:
  size_t group() const { return options_.n_heads / options_.n_kv_heads; }

  void choose(Head& head, uint64_t& state) {
    const size_t n_rows = kTokens * std::min(kChunk, n_pages_ - head.rows.size() * kChunk);
    std::set<uint16_t> rows;
    while (rows.size() < n_rows * 15 / 100) rows.insert(static_cast<uint16_t>(draw(state) % n_rows));
    head.rows.emplace_back(rows.begin(), rows.end());
    const size_t n = rows.size();
    std::vector<uint64_t> kept((n + kTokens - 1) / kTokens, 0);
    for (size_t i = 0; i < n; ++i) kept[i / kTokens] |= static_cast<uint64_t>(draw(state) & 1) << (i % kTokens);
    head.kept.push_back(kept);
  }

  double seconds_of(const auto& work) {
    const auto start = Clock::now();
    team_.run([&](Worker& worker) {
      worker.share(static_cast<int64_t>(heads_.size()), 1, [&](int64_t i, int64_t) {
        work(heads_[static_cast<size_t>(i)], static_cast<size_t>(worker.rank()));
      });
    });
    return std::chrono::duration<double>(Clock::now() - start).count();
  }

  void measure(const char* name, size_t bytes, const auto& work) {
    std::vector<double> times;
    for (int i = 0; i < options_.repeats; ++i) times.push_back(seconds_of(work));
    std::sort(times.begin(), times.end());
    const double pages = static_cast<double>(heads_.size() * n_pages_);
    const double seconds = times[times.size() / 2] / pages;
    const double rate = static_cast<double>(bytes) / seconds * 1e-9;
    std::printf("%-14s %14.1f %12zu %12s %10.1f %7.0f%%\n", name, seconds * 1e9 * options_.n_threads, bytes, "",
                rate, 100 * rate / bandwidth_);
  }

  double read_bandwidth() {
    std::vector<double> times;
    const auto* words = memory_.as<uint64_t>();
    std::vector<uint64_t> sums(static_cast<size_t>(options_.n_threads) * 8);
    const int64_t n = static_cast<int64_t>(memory_.size_bytes() / 8 / 8 * 8);
    for (int repeat = 0; repeat < 3; ++repeat) {
      const auto start = Clock::now();
      team_.run([&](Worker& worker) {
        worker.share(n, 1 << 17, [&](int64_t begin, int64_t end) {
          uint64_t a = 0, b = 0;
          for (int64_t i = begin; i + 8 < end; i += 16) {
            a += words[i];
            b += words[i + 8];
          }
          sums[static_cast<size_t>(worker.rank()) * 8] += a + b;
        });
      });
      times.push_back(std::chrono::duration<double>(Clock::now() - start).count());
    }
    std::sort(times.begin(), times.end());
    volatile uint64_t sink = sums[0];
    (void)sink;
    return static_cast<double>(memory_.size_bytes()) / times[1] * 1e-9;
  }

  Options options_;
  Team team_;
  size_t n_pages_ = 0;
  size_t n_layers_ = 0;
  Memory memory_{0};
  std::vector<Head> heads_;
  std::vector<float> queries_;
  std::vector<IndexTables> tables_;
  Codebook key_book_{};
  Codebook value_book_{};
  double bandwidth_ = 0;
};

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    const int value = i + 1 < argc ? std::atoi(argv[++i]) : 0;
    if (value < 1) throw Error(flag + " wants a positive number");
    if (flag == "-t") options.n_threads = value;
    else if (flag == "--heads") options.n_heads = static_cast<size_t>(value);
    else if (flag == "--kv-heads") options.n_kv_heads = static_cast<size_t>(value);
    else if (flag == "--head-dim") options.head_dim = static_cast<size_t>(value);
    else if (flag == "--tokens") options.n_tokens = static_cast<size_t>(value);
    else if (flag == "--layers") options.n_layers = static_cast<size_t>(value);
    else if (flag == "--repeats") options.repeats = value;
    else throw Error("unknown flag " + flag);
  }
  if (options.n_heads % options.n_kv_heads != 0) throw Error("the KV heads do not divide the query heads");
  return options;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    Bench(parse(argc, argv)).run();
    return 0;
  } catch (const Error& error) {
    std::fprintf(stderr, "index_bench: %s\n", error.what());
    return 2;
  }
}
