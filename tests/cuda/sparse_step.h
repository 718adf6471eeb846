// A sparse step on the device and what double precision over the same stored rows says of it, step by step.
#pragma once

#include "kernels/cuda/sparse_attention.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <string>

#include "cuda/device_graph.h"
#include "cuda/device_test.h"
#include "cuda/page_order.h"
#include "format/frame.h"
#include "format/lloyd_max.h"
#include "format/turbo.h"
#include "property/random.h"
#include "property/reference.h"

namespace quire::test {
using cuda::DeviceBuffer;

struct SparseCase {
  std::vector<int> n_pages;  // sealed, of every sequence
  std::vector<int> tails;    // exact rows behind them
  int n_kv_heads = 2;
  int group = 4;
  int head_dim = 128;
  int n_sinks = 4;
  cuda::SparseBudget budget = {.share = 0.075, .rows = 0, .mass = 0, .candidates = 1.5};
  Format format = Format::kF16;
  bool framed = true;
  int cluster_blocks = 0;
  float query_size = 2.0f;

  size_t n_sequences() const { return n_pages.size(); }
  size_t n_pairs() const { return n_pages.size() * static_cast<size_t>(n_kv_heads); }
  size_t d() const { return static_cast<size_t>(head_dim); }
};

// Keys and values of kKeyBits and kValueBits bits.
template <int kKeyBits, int kValueBits>
struct Nested {
  using Keys = Turbo<kKeyBits>;
  using Values = Turbo<kValueBits>;
  static constexpr int key_bits = kKeyBits;
  static constexpr int value_bits = kValueBits;
};

// What is stored of one row of a KV head, as double precision sees it: outside of any frame.
struct StoredRow {
  std::vector<float> key, value;
};

// What a pair's heads are to be judged by, in octaves.
struct PairScores {
  std::vector<double> best_estimate;  // [token], relative to the mass of exact rows and estimates
  std::vector<double> best_score;     // [token], relative to the mass of exact rows and candidates
  std::vector<bool> may_be_kept;      // by mass: some head wants it
};

template <class Codes>
class SparseStep {
 public:
  SparseStep(const SparseCase& c, uint64_t seed)
      : c_(c),
        random_(seed),
        sealed_(c.n_pages, random_),
        tail_(pages_for(c.tails), random_),
        index_bytes_(static_cast<size_t>(Codes::Keys::index_page_bytes(c.head_dim))),
        key_bytes_(static_cast<size_t>(Codes::Keys::key_page_bytes(c.head_dim))),
        head_bytes_(key_bytes_ + static_cast<size_t>(Codes::Values::value_page_bytes(c.head_dim))),
        key_book_(make_codebook(Codes::Keys::kCodebook, c.head_dim)),
        value_book_(make_codebook(Codes::Values::kCodebook, c.head_dim)) {
    make_frames();
    queries_ = random_.normals(c.n_pairs() * static_cast<size_t>(c.group) * c.d(), c.query_size);
    make_sealed();
    make_exact();
  }

  void run();
  void check() const;
  // The step in a graph, replayed for lengths that the device gets between.
  void run_graph(const std::vector<SparseCase>& cases);
  const std::vector<float>& out() const { return out_; }
  const std::vector<float>& log_sums() const { return log_sums_; }
  const std::vector<int32_t>& n_read() const { return n_read_; }

 private:
  // Everything of a step on the device.
  struct OnDevice {
    explicit OnDevice(const SparseStep& step);
    void lay_pages(const SparseStep& step);
    DeviceBuffer pages, laid, table, lengths, queries, frames, exact, tails, tail_lengths, sinks;
    DeviceBuffer out, log_sums, n_read, candidates, kept, workspace;
    cuda::SparseAttention attention{};
    cuda::SparsePlan plan{};
  };

  void make_frames();
  void make_sealed();
  void make_exact();
  void launch(const OnDevice& device, cuda::Stream stream) const {
    cuda::attend_sparse(device.attention, Codes::key_bits, Codes::value_bits, device.plan, stream);
  }
  void read(const OnDevice& device);
  Frame key_frame(size_t head) const {
    const float* at = frames_.data() + head * c_.d();
    const size_t all = static_cast<size_t>(c_.n_kv_heads) * c_.d();
    return c_.framed ? Frame{c_.head_dim, at, at + all, at + 2 * all}
                     : Frame{c_.head_dim, nullptr, nullptr, nullptr};
  }
  Frame value_frame(size_t head) const {
    const float* at = frames_.data() + head * c_.d();
    const size_t all = static_cast<size_t>(c_.n_kv_heads) * c_.d();
    return c_.framed ? Frame{c_.head_dim, at + 3 * all, nullptr, at + 4 * all}
                     : Frame{c_.head_dim, nullptr, nullptr, nullptr};
  }
  size_t n_sealed(size_t s) const { return static_cast<size_t>(c_.n_pages[s]) * 64; }
  size_t n_sinks(size_t s) const { return c_.n_pages[s] > 0 ? static_cast<size_t>(c_.n_sinks) : 0; }
  const uint8_t* page(size_t s, size_t head, size_t at) const {
    return bytes_.data() + (sealed_.at(s, at) * static_cast<size_t>(c_.n_kv_heads) + head) * head_bytes_;
  }
  StoredRow coded_row(size_t s, size_t head, size_t token) const;
  StoredRow exact_row(size_t page, size_t head, size_t row) const;
  const float* query(size_t s, size_t head, size_t g) const {
    return queries_.data() +
           ((s * static_cast<size_t>(c_.n_kv_heads) + head) * static_cast<size_t>(c_.group) + g) * c_.d();
  }
  bool marked(const std::vector<uint64_t>& words, size_t pair, size_t token) const {
    return (words[pair * sealed_.stride + token / 64] >> (token % 64) & 1) != 0;
  }
  std::vector<std::vector<double>> estimates(size_t s, size_t head) const;
  void check_pair(size_t s, size_t head) const;
  PairScores score_pair(size_t s, size_t head, const std::vector<StoredRow>& exact,
                        const std::vector<StoredRow>& coded) const;
  void check_mass(size_t pair, const std::vector<double>& scores, double exact, double all,
                  std::vector<bool>& may) const;
  void check_output(size_t s, size_t head, const std::vector<StoredRow>& read) const;
  void check_marks(const std::vector<uint64_t>& words, size_t pair, const std::vector<double>& best,
                   int n_wanted, double slack, const std::function<bool(size_t)>& can_be) const;

  SparseCase c_;
  Random random_;
  PageOrder sealed_, tail_;
  size_t index_bytes_, key_bytes_, head_bytes_;
  Codebook key_book_, value_book_;
  std::vector<float> frames_;  // key mean, balance, signs, value mean, signs: [n_kv_heads][head_dim] each
  std::vector<float> queries_;
  std::vector<uint8_t> bytes_;
  std::vector<uint16_t> exact_;      // [page][kv_head][keys, values][64][head_dim]
  std::vector<int32_t> sink_pages_;  // behind those of the tails
  std::vector<float> out_, log_sums_;
  std::vector<int32_t> n_read_;
  std::vector<uint64_t> candidates_, kept_;
};

template <class Codes>
void SparseStep<Codes>::make_frames() {
  const size_t n = static_cast<size_t>(c_.n_kv_heads) * c_.d();
  frames_ = random_.normals(5 * n, 0.5);
  for (size_t i = n; i < 2 * n; ++i) frames_[i] = std::exp(frames_[i]);
  for (size_t head = 0; head < static_cast<size_t>(c_.n_kv_heads); ++head) {
    frame_signs(head + 1, c_.head_dim, frames_.data() + 2 * n + head * c_.d());
    frame_signs(head + 100, c_.head_dim, frames_.data() + 4 * n + head * c_.d());
  }
}

template <class Codes>
void SparseStep<Codes>::make_sealed() {
  bytes_.assign(sealed_.size * static_cast<size_t>(c_.n_kv_heads) * head_bytes_, 0xff);
  for (size_t s = 0; s < c_.n_sequences(); ++s) {
    for (size_t at = 0; at < static_cast<size_t>(c_.n_pages[s]); ++at) {
      for (size_t head = 0; head < static_cast<size_t>(c_.n_kv_heads); ++head) {
        std::vector<float> keys = random_.normals(64 * c_.d());
        std::vector<float> values = random_.normals(64 * c_.d(), 3.0);
        for (size_t t = 0; t < 64; ++t) {
          to_frame(key_frame(head), keys.data() + t * c_.d(), keys.data() + t * c_.d());
          to_frame(value_frame(head), values.data() + t * c_.d(), values.data() + t * c_.d());
        }
        auto* to = const_cast<uint8_t*>(page(s, head, at));
        Codes::Keys::encode_keys(keys.data(), c_.head_dim, key_book_, to);
        Codes::Values::encode_values(values.data(), c_.head_dim, value_book_, to + key_bytes_);
      }
    }
  }
}

// Rows that no token has are NaN.
template <class Codes>
void SparseStep<Codes>::make_exact() {
  const auto to = c_.format == Format::kF16 ? f32_to_f16 : f32_to_bf16;
  const size_t side = 64 * c_.d();
  const size_t page_numbers = 2 * side * static_cast<size_t>(c_.n_kv_heads);
  exact_.assign((tail_.size + c_.n_sequences()) * page_numbers, 0xffff);
  const auto fill = [&](size_t page, size_t n) {
    for (size_t i = 0; i < 2 * static_cast<size_t>(c_.n_kv_heads); ++i) {
      const std::vector<float> rows = random_.normals(n * c_.d());
      for (size_t j = 0; j < n * c_.d(); ++j) exact_[page * page_numbers + i * side + j] = to(rows[j]);
    }
  };
  for (size_t s = 0; s < c_.n_sequences(); ++s) {
    for (size_t first = 0; first < static_cast<size_t>(c_.tails[s]); first += 64)
      fill(tail_.at(s, first / 64), std::min<size_t>(64, static_cast<size_t>(c_.tails[s]) - first));
    sink_pages_.push_back(static_cast<int32_t>(tail_.size + s));
    fill(tail_.size + s, static_cast<size_t>(c_.n_sinks));
  }
}

template <class Codes>
SparseStep<Codes>::OnDevice::OnDevice(const SparseStep& step)
    : pages(on_device(step.bytes_)),
      table(on_device(step.sealed_.entries)),
      queries(on_device(step.queries_)),
      frames(on_device(step.frames_)),
      exact(on_device(step.exact_)),
      tails(on_device(step.tail_.entries)),
      tail_lengths(on_device(step.c_.tails)),
      sinks(on_device(step.sink_pages_)),
      out(step.queries_.size() * sizeof(float)),
      log_sums(step.queries_.size() / step.c_.d() * sizeof(float)),
      n_read(step.c_.n_pairs() * 2 * sizeof(int32_t)),
      candidates(step.c_.n_pairs() * step.sealed_.stride * sizeof(uint64_t)),
      kept(step.c_.n_pairs() * step.sealed_.stride * sizeof(uint64_t)) {
  const SparseCase& c = step.c_;
  std::vector<int32_t> n_tokens;
  for (const int n : c.n_pages) n_tokens.push_back(64 * n);
  lengths = on_device(n_tokens);
  for (DeviceBuffer* buffer : {&out, &log_sums, &n_read}) buffer->fill(0xff);
  candidates.fill(0);
  kept.fill(0);
  lay_pages(step);
  const int64_t keys_offset = cuda::sparse_index_bytes(c.head_dim);
  const int64_t values_offset = keys_offset + cuda::sparse_key_bytes(Codes::key_bits, c.head_dim);
  const int64_t head_bytes = values_offset + cuda::sparse_value_bytes(c.head_dim);
  const int64_t page_bytes = head_bytes * c.n_kv_heads;
  const auto* data = laid.as<uint8_t>();
  const float* frame = frames.as<float>();
  const int64_t all = static_cast<int64_t>(c.n_kv_heads) * c.head_dim;
  const int64_t side = 2 * 64 * c.head_dim;
  const auto* exact_data = exact.as<uint8_t>();
  attention = {static_cast<int>(c.n_sequences()),
               c.n_kv_heads,
               c.group,
               c.head_dim,
               queries.as<float>(),
               1.0f / std::sqrt(static_cast<float>(c.head_dim)),
               {data, page_bytes, head_bytes},
               {data + keys_offset, page_bytes, head_bytes},
               {data + values_offset, page_bytes, head_bytes},
               table.as<int32_t>(),
               static_cast<int>(step.sealed_.stride),
               lengths.as<int32_t>(),
               c.n_sinks,
               c.framed ? cuda::FramePlane{frame, frame + all, frame + 2 * all} : cuda::FramePlane{},
               c.framed ? cuda::FramePlane{frame + 3 * all, nullptr, frame + 4 * all} : cuda::FramePlane{},
               {c.format,
                {exact_data, 2 * side * c.n_kv_heads, 2 * side},
                {exact_data + side, 2 * side * c.n_kv_heads, 2 * side},
                tails.as<int32_t>(),
                static_cast<int>(step.tail_.stride),
                tail_lengths.as<int32_t>(),
                sinks.as<int32_t>()},
               c.budget,
               out.as<float>(),
               log_sums.as<float>(),
               n_read.as<int32_t>(),
               candidates.as<uint64_t>(),
               kept.as<uint64_t>(),
               nullptr};
  plan = cuda::plan_sparse(attention, Codes::key_bits, Codes::value_bits, cuda::sparse_device(),
                           c.cluster_blocks);
  workspace = DeviceBuffer(plan.workspace_bytes);
  workspace.fill(0xff);
  attention.workspace = workspace.as<void>();
}

// From the CPU's bytes to the device's, and what is not written is 0xff.
template <class Codes>
void SparseStep<Codes>::OnDevice::lay_pages(const SparseStep& step) {
  const SparseCase& c = step.c_;
  std::vector<int32_t> sealed;
  for (const int32_t number : step.sealed_.entries) {
    if (number >= 0) sealed.push_back(number);
  }
  const DeviceBuffer numbers = on_device(sealed);
  const auto planes = [&](const DeviceBuffer& buffer, size_t keys, size_t values, size_t head) {
    const auto head_bytes = static_cast<int64_t>(head);
    const int64_t page_bytes = head_bytes * c.n_kv_heads;
    const auto* data = buffer.as<uint8_t>();
    return cuda::SparsePages{{data, page_bytes, head_bytes},
                             {data + keys, page_bytes, head_bytes},
                             {data + values, page_bytes, head_bytes}};
  };
  const auto keys = static_cast<size_t>(cuda::sparse_index_bytes(c.head_dim));
  const size_t values = keys + static_cast<size_t>(cuda::sparse_key_bytes(Codes::key_bits, c.head_dim));
  const size_t head = values + static_cast<size_t>(cuda::sparse_value_bytes(c.head_dim));
  laid = DeviceBuffer(step.sealed_.size * static_cast<size_t>(c.n_kv_heads) * head);
  laid.fill(0xff);
  const auto from = planes(pages, step.index_bytes_, step.key_bytes_, step.head_bytes_);
  const auto to = planes(laid, keys, values, head);
  cuda::lay_sparse_pages(from, to, numbers.as<int32_t>(), static_cast<int>(sealed.size()), c.n_kv_heads,
                         c.head_dim, Codes::key_bits, Codes::value_bits, nullptr);
  cuda::wait_for(nullptr);
  // Back over zeros, they are what they were.
  pages.fill(0);
  cuda::take_sparse_pages(to, from, numbers.as<int32_t>(), static_cast<int>(sealed.size()), c.n_kv_heads,
                          c.head_dim, Codes::key_bits, Codes::value_bits, nullptr);
  cuda::wait_for(nullptr);
  const std::vector<uint8_t> back = on_host<uint8_t>(pages);
  const size_t page_bytes = step.head_bytes_ * static_cast<size_t>(c.n_kv_heads);
  for (const int32_t number : sealed) {
    const auto at = static_cast<std::ptrdiff_t>(static_cast<size_t>(number) * page_bytes);
    EXPECT_TRUE(std::equal(back.begin() + at, back.begin() + at + static_cast<std::ptrdiff_t>(page_bytes),
                           step.bytes_.begin() + at));
  }
}

template <class Codes>
void SparseStep<Codes>::read(const OnDevice& device) {
  out_ = on_host<float>(device.out);
  log_sums_ = on_host<float>(device.log_sums);
  n_read_ = on_host<int32_t>(device.n_read);
  candidates_ = on_host<uint64_t>(device.candidates);
  kept_ = on_host<uint64_t>(device.kept);
}

template <class Codes>
void SparseStep<Codes>::run() {
  const OnDevice device(*this);
  launch(device, nullptr);
  cuda::wait_for(nullptr);
  read(device);
}

template <class Codes>
void SparseStep<Codes>::run_graph(const std::vector<SparseCase>& cases) {
  OnDevice device(*this);
  DeviceGraph graph([&](cuda::Stream stream) { launch(device, stream); });
  for (const SparseCase& c : cases) {
    c_.n_pages = c.n_pages;
    c_.tails = c.tails;
    std::vector<int32_t> n_tokens;
    for (const int n : c.n_pages) n_tokens.push_back(64 * n);
    device.lengths.write(n_tokens.data(), n_tokens.size() * sizeof(int32_t));
    device.tail_lengths.write(c.tails.data(), c.tails.size() * sizeof(int32_t));
    graph.replay();
    read(device);
    check();
  }
}

template <class Codes>
StoredRow SparseStep<Codes>::coded_row(size_t s, size_t head, size_t token) const {
  StoredRow row = {std::vector<float>(c_.d()), std::vector<float>(c_.d())};
  const int t = static_cast<int>(token % 64);
  Codes::Keys::decode_key_row(page(s, head, token / 64), c_.head_dim, t, key_book_, row.key.data());
  Codes::Values::decode_value_row(page(s, head, token / 64) + key_bytes_, c_.head_dim, t, value_book_,
                                  row.value.data());
  row_from_frame(key_frame(head), row.key.data(), row.key.data());
  row_from_frame(value_frame(head), row.value.data(), row.value.data());
  return row;
}

template <class Codes>
StoredRow SparseStep<Codes>::exact_row(size_t page, size_t head, size_t row) const {
  const auto from = c_.format == Format::kF16 ? f16_to_f32 : bf16_to_f32;
  const size_t at = (page * static_cast<size_t>(c_.n_kv_heads) + head) * 128 * c_.d() + row * c_.d();
  StoredRow stored;
  for (size_t d = 0; d < c_.d(); ++d) {
    stored.key.push_back(from(exact_[at + d]));
    stored.value.push_back(from(exact_[at + 64 * c_.d() + d]));
  }
  return stored;
}

inline double log2_sum(const std::vector<double>& octaves) {
  double top = -INFINITY;
  for (const double x : octaves) top = std::max(top, x);
  double sum = 0;
  for (const double x : octaves) sum += std::exp2(x - top);
  return std::isinf(top) ? top : top + std::log2(sum);
}

inline double product(const float* q, const std::vector<float>& row) {
  double sum = 0;
  for (size_t d = 0; d < row.size(); ++d) sum += static_cast<double>(q[d]) * row[d];
  return sum;
}

// By the sign planes and the queries as rounded: [g][token] octaves, without what centring took off.
template <class Codes>
std::vector<std::vector<double>> SparseStep<Codes>::estimates(size_t s, size_t head) const {
  std::vector<std::vector<double>> all;
  for (size_t g = 0; g < static_cast<size_t>(c_.group); ++g) {
    std::vector<float> q(c_.d());
    query_to_frame(key_frame(head), query(s, head, g), q.data());
    float largest = 0;
    for (const float x : q) largest = std::max(largest, std::fabs(x));
    std::vector<double> rounded;
    for (const float x : q)
      rounded.push_back(largest > 0 ? std::rint(x * (31.0f / largest)) * static_cast<double>(largest) / 31
                                    : 0.0);
    std::vector<double> octaves(n_sealed(s));
    for (size_t t = 0; t < octaves.size(); ++t) {
      const uint8_t* at = page(s, head, t / 64);
      double sum = 0;
      for (size_t d = 0; d < c_.d(); ++d)
        sum += (at[d / 8 * 64 + t % 64] >> (d % 8) & 1) != 0 ? rounded[d] : -rounded[d];
      const double norm = get_half(at + Codes::Keys::key_norms_offset(c_.head_dim) + 2 * (t % 64));
      octaves[t] = sum * norm * std::sqrt(2 / (M_PI * c_.head_dim)) / std::sqrt(c_.head_dim) * M_LOG2E;
    }
    all.push_back(std::move(octaves));
  }
  return all;
}

// As many as wanted of those that can be, and none clearly less probable than one left out.
template <class Codes>
void SparseStep<Codes>::check_marks(const std::vector<uint64_t>& words, size_t pair,
                                    const std::vector<double>& best, int n_wanted, double slack,
                                    const std::function<bool(size_t)>& can_be) const {
  double least_marked = 1e30, best_left = -1e30;
  int n = 0, n_surely = 0, n_perhaps = 0;
  for (size_t t = 0; t < best.size(); ++t) {
    const bool is_marked = marked(words, pair, t);
    if (!can_be(t)) {
      ASSERT_FALSE(is_marked) << "token " << t;
      continue;
    }
    n += is_marked;
    n_surely += best[t] > -31.5;  // level 0 is never marked
    n_perhaps += best[t] > -32.5;
    (is_marked ? least_marked : best_left) =
        is_marked ? std::min(least_marked, best[t]) : std::max(best_left, best[t]);
  }
  ASSERT_LE(n, std::min(n_wanted, n_perhaps));
  ASSERT_GE(n, std::min(n_wanted, n_surely));
  if (n > 0 && n < n_surely) {
    ASSERT_GT(least_marked, best_left - slack);
  }
}

// By mass: what a head keeps holds enough, and `may` gets the rows that it may keep: no level below those
// needed.
template <class Codes>
void SparseStep<Codes>::check_mass(size_t pair, const std::vector<double>& scores, double exact, double all,
                                   std::vector<bool>& may) const {
  std::vector<size_t> order;
  for (size_t t = 0; t < scores.size(); ++t) {
    if (marked(candidates_, pair, t)) order.push_back(t);
  }
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return scores[a] > scores[b]; });
  double sum = std::exp2(exact - all), kept = sum;
  double edge = INFINITY;
  for (const size_t t : order) {
    const double share = std::exp2(scores[t] - all);
    if (marked(kept_, pair, t)) kept += share;
    if (sum < c_.budget.mass - 1e-4) edge = scores[t];
    sum += share;
  }
  ASSERT_GE(kept, c_.budget.mass - 1e-4);
  for (const size_t t : order) may[t] = may[t] || scores[t] > edge - 0.15;
}

template <class Codes>
PairScores SparseStep<Codes>::score_pair(size_t s, size_t head, const std::vector<StoredRow>& exact,
                                         const std::vector<StoredRow>& coded) const {
  const size_t pair = s * static_cast<size_t>(c_.n_kv_heads) + head;
  const size_t n = n_sealed(s);
  const double unit = M_LOG2E / std::sqrt(c_.head_dim);
  const auto estimated = estimates(s, head);
  PairScores result = {std::vector<double>(n, -1e30), std::vector<double>(n, -1e30), std::vector<bool>(n)};
  for (size_t g = 0; g < static_cast<size_t>(c_.group); ++g) {
    const float* q = query(s, head, g);
    const double bias = query_bias(key_frame(head), q) * unit;
    std::vector<double> octaves;
    for (const StoredRow& row : exact) octaves.push_back(product(q, row.key) * unit);
    const double exact_sum = log2_sum(octaves);
    const double coded_sum =
        bias + log2_sum({estimated[g].begin() + static_cast<std::ptrdiff_t>(n_sinks(s)), estimated[g].end()});
    const double offset = std::min(log2_sum({coded_sum, exact_sum}), coded_sum + 11 * M_LOG2E) - bias;
    std::vector<double> scores(n, -1e30);
    for (size_t t = 0; t < n; ++t) {
      result.best_estimate[t] = std::max(result.best_estimate[t], estimated[g][t] - offset);
      if (!marked(candidates_, pair, t)) continue;
      scores[t] = product(q, coded[t].key) * unit;
      octaves.push_back(scores[t]);
    }
    const double all = log2_sum(octaves);
    for (size_t t = 0; t < n; ++t) result.best_score[t] = std::max(result.best_score[t], scores[t] - all);
    if (cuda::by_mass(c_.budget)) check_mass(pair, scores, exact_sum, all, result.may_be_kept);
  }
  return result;
}

template <class Codes>
void SparseStep<Codes>::check_output(size_t s, size_t head, const std::vector<StoredRow>& read) const {
  const auto group = static_cast<size_t>(c_.group);
  // Numbers of a query are rounded to f16 or bf16, so the error of a weight grows with the scores; in frames
  // that stretch some dims and shrink others (make_frames) to 1.65 times as much.
  const double tolerance =
      (c_.format == Format::kF16 ? 2e-3 : 8e-3) * std::max(1.0, static_cast<double>(c_.query_size));
  for (size_t g = 0; g < group; ++g) {
    std::vector<float> q(query(s, head, g), query(s, head, g) + c_.d());
    for (float& x : q) x /= std::sqrt(static_cast<float>(c_.head_dim));
    const Attended wanted = attention(
        q.data(), c_.d(), read.size(), [](size_t) { return true; },
        [&](size_t t, size_t d) { return read[t].key[d]; },
        [&](size_t t, size_t d) { return read[t].value[d]; });
    const size_t at = (s * static_cast<size_t>(c_.n_kv_heads) + head) * group + g;
    double error = 0, size = 0;
    for (size_t d = 0; d < c_.d(); ++d) {
      error += std::pow(out_[at * c_.d() + d] - wanted.output[d], 2);
      size += std::pow(wanted.output[d], 2);
    }
    ASSERT_LE(std::sqrt(error), tolerance * std::sqrt(size)) << "query head " << g;
    if (std::isinf(wanted.log_sum)) {
      ASSERT_EQ(log_sums_[at], -INFINITY);
    } else {
      ASSERT_NEAR(log_sums_[at], wanted.log_sum, tolerance) << "query head " << g;
    }
  }
}

template <class Codes>
void SparseStep<Codes>::check_pair(size_t s, size_t head) const {
  const size_t pair = s * static_cast<size_t>(c_.n_kv_heads) + head;
  const size_t n = n_sealed(s);
  const int n_coded = static_cast<int>(n - n_sinks(s));
  const cuda::SparseCounts counts =
      cuda::sparse_counts(c_.budget, c_.tails[s] + static_cast<int>(n_sinks(s)), n_coded);
  std::vector<StoredRow> read, coded(n);
  for (size_t t = 0; t < static_cast<size_t>(c_.tails[s]); ++t)
    read.push_back(exact_row(tail_.at(s, t / 64), head, t % 64));
  for (size_t t = 0; t < n_sinks(s); ++t) read.push_back(exact_row(tail_.size + s, head, t));
  for (size_t t = 0; t < n; ++t) {
    if (marked(candidates_, pair, t)) coded[t] = coded_row(s, head, t);
  }
  const PairScores scores = score_pair(s, head, read, coded);
  if (testing::Test::HasFatalFailure()) return;
  // Levels are an eighth of an octave apart, and offsets of heads are rounded to one.
  check_marks(candidates_, pair, scores.best_estimate, counts.n_candidates,
              counts.n_candidates >= n_coded ? 1e30 : 0.27, [&](size_t t) { return t >= n_sinks(s); });
  if (cuda::by_mass(c_.budget)) {
    for (size_t t = 0; t < n; ++t)
      ASSERT_TRUE(scores.may_be_kept[t] || !marked(kept_, pair, t)) << "token " << t;
  } else {
    check_marks(kept_, pair, scores.best_score, counts.n_rows, 0.14,
                [&](size_t t) { return marked(candidates_, pair, t); });
  }
  int n_candidates = 0, n_kept = 0;
  for (size_t t = 0; t < n; ++t) {
    n_candidates += marked(candidates_, pair, t);
    n_kept += marked(kept_, pair, t);
    if (marked(kept_, pair, t)) read.push_back(coded[t]);
  }
  ASSERT_EQ(n_read_[2 * pair], n_candidates);
  ASSERT_EQ(n_read_[2 * pair + 1], n_kept);
  check_output(s, head, read);
}

template <class Codes>
void SparseStep<Codes>::check() const {
  for (size_t s = 0; s < c_.n_sequences(); ++s) {
    for (size_t head = 0; head < static_cast<size_t>(c_.n_kv_heads); ++head) {
      SCOPED_TRACE("sequence " + std::to_string(s) + " KV head " + std::to_string(head));
      check_pair(s, head);
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

}  // namespace quire::test
