// The kernels that read rows chosen by an index, each alone: nanoseconds a page, and the share of the
// machine's memory bandwidth, over pages that no cache holds.
//
//   index_bench [-t THREADS] [--heads H] [--kv-heads K] [--head-dim D] [--tokens N] [--layers L] [--repeats
//   R]
//
// Pages of nested4 keys and nested3 values lie as in the store. Every member of the team takes a head through
// the three steps, as attention does: the index of all rows, the key codes of 11.25 % of them, the values of
// 7.5 %, drawn at random. Bytes are those that the step needs, whatever the lines of the caches they lie in.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/memory.h"
#include "base/team.h"
#include "format/code_catalogue.h"
#include "format/lloyd_max.h"
#include "kernels/ops.h"
#include "store/store.h"

namespace {

using namespace quire;
using Clock = std::chrono::steady_clock;
using Keys = Turbo<4>;
using Values = Turbo<3>;

constexpr size_t kPagesPerCall = 16;
constexpr size_t kColdBytes = size_t{1200} << 20;  // of all layers together
constexpr double kCandidates = 0.1125;
constexpr double kKept = 0.075;

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

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// The rows of a run of pages: candidates, and which of each 64 of them are kept.
struct Rows {
  std::vector<uint16_t> candidates;
  std::vector<uint64_t> kept;
};

Rows draw_rows(size_t n_pages, uint64_t& state) {
  Rows rows;
  for (size_t at = 0; at < n_pages * kTokensPerPage; ++at) {
    const double share = draw(state) % 100000 * 1e-5;
    if (share >= kCandidates) continue;
    if (rows.candidates.size() % kTokensPerPage == 0) rows.kept.push_back(0);
    if (share < kKept) rows.kept.back() |= uint64_t{1} << rows.candidates.size() % kTokensPerPage;
    rows.candidates.push_back(static_cast<uint16_t>(at));
  }
  return rows;
}

// One KV head of one layer.
struct Head {
  std::vector<const uint8_t*> index;
  std::vector<KeyPage> keys;
  std::vector<const uint8_t*> values;
  std::vector<Rows> rows;  // of each run of pages
};

// What a member of the team works with.
struct Lane {
  std::vector<int16_t> estimates;
  std::vector<float> scores;
  std::vector<float> out;
  std::array<double, 3> seconds{};
};

class Bench {
 public:
  explicit Bench(const Options& options)
      : options_(options), team_(options.n_threads), dim_(static_cast<int>(options.head_dim)) {
    layout_ = {options.n_kv_heads, options.head_dim, SideFormat::of(Code::kNested4),
               SideFormat::of(Code::kNested3)};
    n_pages_ = options.n_tokens / kTokensPerPage;
    const size_t layer_bytes = layout_.bytes(n_pages_);
    n_layers_ = options.n_layers > 0 ? options.n_layers : std::max<size_t>(2, kColdBytes / layer_bytes);
    memory_ = Memory(n_layers_ * layer_bytes + kSpareBytes);
    uint64_t state = 1;
    auto* words = memory_.as<uint32_t>();
    for (size_t i = 0; i < memory_.size_bytes() / 4; ++i)
      words[i] = draw(state) & 0x3bff3bffu;  // norms below 1
    for (size_t layer = 0; layer < n_layers_; ++layer)
      add_layer(memory_.as<uint8_t>() + layer * layer_bytes, state);
    make_queries(state);
    lanes_.resize(static_cast<size_t>(options.n_threads));
    for (Lane& lane : lanes_) {
      lane.estimates.resize(group() * n_pages_ * kTokensPerPage);
      lane.scores.resize(group() * kPagesPerCall * kTokensPerPage, 0.5f);
      lane.out.resize(group() * options.head_dim);
    }
  }

  void run() {
    const double bandwidth = read_bandwidth();
    std::array<std::vector<double>, 3> seconds;
    for (int repeat = -1; repeat < options_.repeats; ++repeat) {  // the first round warms up
      const std::array<double, 3> round = walk();
      for (size_t step = 0; step < 3 && repeat >= 0; ++step) seconds[step].push_back(round[step]);
    }
    std::printf("%s, %d threads, %zu query / %zu KV heads of %d, %zu tokens; reads %.1f GB/s\n", ops().name,
                options_.n_threads, options_.n_heads, options_.n_kv_heads, dim_, options_.n_tokens,
                bandwidth);
    std::printf("%-16s %12s %12s %10s %8s\n", "kernel", "ns a page", "bytes a page", "GB/s", "share");
    const std::array<const char*, 3> names = {"estimate", "score_rows", "accumulate_rows"};
    const std::array<double, 3> bytes = {static_cast<double>(layout_.index_bytes()),
                                         kCandidates * static_cast<double>(layout_.key_bytes()),
                                         kKept * static_cast<double>(layout_.value_bytes())};
    for (size_t step = 0; step < 3; ++step) {
      // Of one member: the others work beside it.
      const double page = median(seconds[step]) / static_cast<double>(heads_.size() * n_pages_);
      const double rate = bytes[step] / page * options_.n_threads * 1e-9;
      std::printf("%-16s %12.1f %12.0f %10.1f %7.0f%%\n", names[step], page * 1e9, bytes[step], rate,
                  100 * rate / bandwidth);
    }
  }

 private:
  size_t group() const { return options_.n_heads / options_.n_kv_heads; }

  void add_layer(const uint8_t* data, uint64_t& state) {
    const uint8_t* blocks = data + n_pages_ * layout_.page_bytes();
    for (size_t h = 0; h < options_.n_kv_heads; ++h) {
      Head head;
      for (size_t page = 0; page < n_pages_; ++page) {
        const uint8_t* rest = data + page * layout_.page_bytes();
        head.index.push_back(blocks + page / kPagesPerIndexBlock * layout_.index_block_bytes() +
                             layout_.index_offset(h, page));
        head.keys.push_back({head.index.back(), rest + layout_.key_offset(h)});
        head.values.push_back(rest + layout_.value_offset(h));
      }
      for (size_t first = 0; first < n_pages_; first += kPagesPerCall) {
        head.rows.push_back(draw_rows(std::min(kPagesPerCall, n_pages_ - first), state));
      }
      heads_.push_back(std::move(head));
    }
  }

  void make_queries(uint64_t& state) {
    queries_.resize(group() * options_.head_dim);
    for (float& x : queries_) x = static_cast<float>(draw(state) % 1000) / 1000 - 0.5f;
    tables_.resize(group());
    for (size_t i = 0; i < group(); ++i) {
      ops().index.sign_tables(queries_.data() + i * options_.head_dim, dim_, &tables_[i]);
    }
    key_book_ = make_codebook(Keys::kCodebook, dim_);
    value_book_ = make_codebook(Values::kCodebook, dim_);
    ones_.assign(group(), 1.0f);
  }

  void estimate(const Head& head, Lane& lane) {
    const size_t ld = n_pages_ * kTokensPerPage;
    for (size_t p = 0; p < n_pages_; p += kPagesPerCall) {
      ops().index.estimate(tables_.data(), static_cast<int>(group()), dim_, head.index.data() + p,
                           static_cast<int>(std::min(kPagesPerCall, n_pages_ - p)),
                           static_cast<int>(n_pages_ - p), Keys::index_norms_offset(dim_),
                           lane.estimates.data() + p * kTokensPerPage, ld);
    }
  }

  KeyRowRefs candidates(const Head& head, size_t run) const {
    if (run == head.rows.size()) return {};
    const std::vector<uint16_t>& rows = head.rows[run].candidates;
    return {head.keys.data() + run * kPagesPerCall, rows.data(), static_cast<int>(rows.size())};
  }

  void score(const Head& head, Lane& lane) {
    for (size_t run = 0; run < head.rows.size(); ++run) {
      ops().codes.score_rows[static_cast<size_t>(Code::kNested4)](
          key_book_, queries_.data(), static_cast<int>(group()), dim_, candidates(head, run),
          lane.scores.data(), candidates(head, run + 1));
    }
  }

  RowRefs tile(const Head& head, size_t run, size_t i) const {
    const std::vector<uint16_t>& rows = head.rows[run].candidates;
    const size_t first = i * kTokensPerPage;
    return {head.values.data() + run * kPagesPerCall, rows.data() + first,
            static_cast<int>(std::min(kTokensPerPage, rows.size() - first))};
  }

  void accumulate(const Head& head, Lane& lane) {
    for (size_t run = 0; run < head.rows.size(); ++run) {
      const std::vector<uint64_t>& kept = head.rows[run].kept;
      for (size_t i = 0; i < kept.size(); ++i) {
        size_t next_run = run, next = i + 1;
        if (next == kept.size()) ++next_run, next = 0;
        const bool more = next_run < head.rows.size() && next < head.rows[next_run].kept.size();
        ops().codes.accumulate_rows[static_cast<size_t>(Code::kNested3)](
            value_book_, lane.scores.data(), ones_.data(), tile(head, run, i), kept[i],
            static_cast<int>(group()), dim_, lane.out.data(), more ? tile(head, next_run, next) : RowRefs{},
            more ? head.rows[next_run].kept[next] : uint64_t{0});
      }
    }
  }

  // Seconds of each step, all heads together.
  std::array<double, 3> walk() {
    for (Lane& lane : lanes_) lane.seconds = {};
    team_.run([&](Worker& worker) {
      Lane& lane = lanes_[static_cast<size_t>(worker.rank())];
      worker.share(static_cast<int64_t>(heads_.size()), 1, [&](int64_t i, int64_t) {
        const Head& head = heads_[static_cast<size_t>(i)];
        const auto timed = [&](size_t step, const auto& work) {
          const auto start = Clock::now();
          work();
          lane.seconds[step] += seconds_since(start);
        };
        timed(0, [&] { estimate(head, lane); });
        timed(1, [&] { score(head, lane); });
        timed(2, [&] { accumulate(head, lane); });
      });
    });
    std::array<double, 3> total{};
    for (const Lane& lane : lanes_) {
      for (size_t step = 0; step < 3; ++step) total[step] += lane.seconds[step];
    }
    return total;
  }

  double read_bandwidth() {
    std::vector<double> rates;
    const auto* words = memory_.as<uint64_t>();
    std::vector<uint64_t> sums(static_cast<size_t>(options_.n_threads) * 8);
    const auto n = static_cast<int64_t>(memory_.size_bytes() / 64 * 8);
    for (int repeat = 0; repeat < 5; ++repeat) {
      const auto start = Clock::now();
      team_.run([&](Worker& worker) {
        worker.share(n, 1 << 16, [&](int64_t begin, int64_t end) {
          uint64_t sum = 0;
          for (int64_t i = begin; i < end; i += 8) sum += words[i];  // one word of each line fetches it
          sums[static_cast<size_t>(worker.rank()) * 8] += sum;
        });
      });
      rates.push_back(static_cast<double>(memory_.size_bytes()) / seconds_since(start) * 1e-9);
    }
    volatile uint64_t sink = sums[0];
    (void)sink;
    return median(rates);
  }

  Options options_;
  Team team_;
  int dim_;
  SealedLayout layout_;
  size_t n_pages_ = 0;
  size_t n_layers_ = 0;
  Memory memory_{0};
  std::vector<Head> heads_;
  std::vector<float> queries_;
  std::vector<float> ones_;
  std::vector<IndexTables> tables_;
  std::vector<Lane> lanes_;
  Codebook key_book_{};
  Codebook value_book_{};
};

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; i += 2) {
    const std::string flag = argv[i];
    const int value = i + 1 < argc ? std::atoi(argv[i + 1]) : 0;
    if (value < 1) throw Error(flag + " wants a positive number");
    const auto n = static_cast<size_t>(value);
    if (flag == "-t") {
      options.n_threads = value;
    } else if (flag == "--repeats") {
      options.repeats = value;
    } else if (flag == "--heads") {
      options.n_heads = n;
    } else if (flag == "--kv-heads") {
      options.n_kv_heads = n;
    } else if (flag == "--head-dim") {
      options.head_dim = n;
    } else if (flag == "--tokens") {
      options.n_tokens = n;
    } else if (flag == "--layers") {
      options.n_layers = n;
    } else {
      throw Error("unknown flag " + flag);
    }
  }
  if (options.n_heads % options.n_kv_heads != 0) throw Error("the KV heads do not divide the query heads");
  if (options.n_tokens < kTokensPerPage) throw Error("--tokens wants at least a page of 64");
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
