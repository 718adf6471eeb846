#include "cache/prompt_statistics.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "cache/cache.h"
#include "cache/hot_rows.h"
#include "kernels/ops.h"

namespace quire {

namespace {

// Floor of a channel's range, as a share of the mean over the channels: dead channels divide by zero else.
constexpr float kFloor = 0.01f;
constexpr size_t kWords = 16;     // of a code group
constexpr size_t kGroupDims = 4;  // dims of a code group

size_t code_groups(size_t head_dim) { return 2 * ((head_dim + 7) / 8); }

// Expands rows of one head, keys [head_dim][64] or values [64][head_dim] a page -> [token][head_dim].
std::vector<float> expand_rows(const LayerView& view, size_t kv_head, bool of_keys) {
  const size_t dim = view.layout->head_dim;
  std::vector<float> rows(view.n_tokens * dim);
  std::vector<float> page(kTokensPerPage * dim + kSpareBytes / sizeof(float));
  const Format format = of_keys ? view.layout->key_format : view.layout->value_format;
  for (size_t first = 0; first < view.n_tokens; first += kTokensPerPage) {
    const size_t at = first / kTokensPerPage;
    const std::byte* bytes = of_keys ? view.keys(kv_head, at) : view.values(kv_head, at);
    ops().unpack[static_cast<size_t>(format)](bytes, kTokensPerPage * dim, page.data());
    const size_t n = std::min(kTokensPerPage, view.n_tokens - first);
    for (size_t t = 0; t < n; ++t) {
      for (size_t d = 0; d < dim; ++d) {
        rows[(first + t) * dim + d] = of_keys ? page[d * kTokensPerPage + t] : page[t * dim + d];
      }
    }
  }
  return rows;
}

// Mean over the rows from `first` on.
void mean_rows(const std::vector<float>& rows, size_t dim, size_t first, float* mean) {
  std::vector<double> sum(dim, 0.0);
  const size_t n = rows.size() / dim;
  for (size_t t = first; t < n; ++t) {
    for (size_t d = 0; d < dim; ++d) sum[d] += rows[t * dim + d];
  }
  for (size_t d = 0; d < dim; ++d) mean[d] = static_cast<float>(sum[d] / static_cast<double>(n - first));
}

bool wants_value_mean(const Recipe& recipe) { return recipe.frame_of(recipe.values) == FrameKind::kCentred; }

bool has_sign_words(const Recipe& recipe) { return recipe.keys.coded && recipe.keys.code == Code::kSignVq; }

}  // namespace

LayerStatistics sized_statistics(const Recipe& recipe, size_t n_kv_heads, size_t head_dim) {
  const size_t n = n_kv_heads * head_dim;
  LayerStatistics statistics;
  if (recipe.frame_of(recipe.keys) >= FrameKind::kCalibrated || has_sign_words(recipe)) {
    statistics.key_mean.resize(n);
    statistics.key_balance.resize(n);
  }
  if (wants_value_mean(recipe)) statistics.value_mean.resize(n);
  if (has_sign_words(recipe)) {
    statistics.codebook.resize(n_kv_heads * code_groups(head_dim) * kWords * kGroupDims);
  }
  return statistics;
}

HeadFrames LayerStatistics::apply(HeadFrames frames, size_t kv_head, size_t head_dim) const {
  const size_t at = kv_head * head_dim;
  if (!key_mean.empty()) {
    frames.key_framed = true;
    frames.key.mean = key_mean.data() + at;
    frames.key.balance = key_balance.data() + at;
  }
  if (!value_mean.empty()) frames.value.mean = value_mean.data() + at;
  if (!codebook.empty()) {
    frames.index_codebook = codebook.data() + kv_head * code_groups(head_dim) * kWords * kGroupDims;
  }
  return frames;
}

void observe_head(const float* q, size_t ldq, size_t n, size_t kv_head, size_t group, size_t head_dim,
                  PromptObserver& observer) {
  double* squares = observer.query_squares.data() + kv_head * head_dim;
  float* last = observer.last_query.data() + kv_head * head_dim;
  for (size_t i = 0; i < n; ++i) {
    const float* row = q + i * ldq + kv_head * group * head_dim;
    for (size_t h = 0; h < group; ++h) {
      for (size_t d = 0; d < head_dim; ++d) squares[d] += row[h * head_dim + d] * row[h * head_dim + d];
    }
  }
  const float* row = q + (n - 1) * ldq + kv_head * group * head_dim;
  for (size_t d = 0; d < head_dim; ++d) {
    last[d] = 0;
    for (size_t h = 0; h < group; ++h) last[d] += row[h * head_dim + d] / static_cast<float>(group);
  }
}

HeadStatistics::HeadStatistics(const Recipe& recipe, const LayerView& view, size_t kv_head,
                               const KeyBias* key_bias)
    : recipe_(recipe), view_(view), kv_head_(kv_head), key_bias_(key_bias), dim_(view.layout->head_dim) {
  keys_ = expand_rows(view, kv_head, true);
  if (wants_value_mean(recipe)) values_ = expand_rows(view, kv_head, false);
}

void HeadStatistics::measure(const PromptObserver& observer, size_t n_due, uint32_t* kept, size_t n_kept,
                             LayerStatistics& statistics) {
  choose_rows(observer, n_due, kept, n_kept);
  take_off_bias();
  measure_means(statistics);
  if (!statistics.codebook.empty()) {
    measure_signs(kept, n_kept, statistics);
  } else if (!statistics.key_mean.empty()) {
    balance(observer, statistics);
  }
}

void HeadStatistics::take_off_bias() {
  for (size_t t = 0; key_bias_ != nullptr && t < view_.n_tokens; ++t) {
    key_bias_->take_off(t, keys_.data() + t * dim_);
  }
}

void HeadStatistics::measure_means(LayerStatistics& statistics) {
  const size_t first = recipe_.sink_tokens;
  if (!statistics.key_mean.empty()) {
    mean_rows(keys_, dim_, first, statistics.key_mean.data() + kv_head_ * dim_);
  }
  if (!statistics.value_mean.empty()) {
    mean_rows(values_, dim_, first, statistics.value_mean.data() + kv_head_ * dim_);
  }
}

// sqrt(rms k / rms q) of each channel: the error of a code spreads to where queries do not look.
void HeadStatistics::balance(const PromptObserver& observer, LayerStatistics& statistics) const {
  const float* mean = statistics.key_mean.data() + kv_head_ * dim_;
  const double* squares = observer.query_squares.data() + kv_head_ * dim_;
  std::vector<double> q(dim_), k(dim_, 0.0);
  for (size_t t = recipe_.sink_tokens; t < view_.n_tokens; ++t) {
    for (size_t d = 0; d < dim_; ++d) k[d] += (key(t)[d] - mean[d]) * (key(t)[d] - mean[d]);
  }
  const auto n_keys = static_cast<double>(view_.n_tokens - recipe_.sink_tokens);
  for (size_t d = 0; d < dim_; ++d) {
    q[d] = std::sqrt(squares[d] / static_cast<double>(std::max<size_t>(observer.n_queries, 1)));
    k[d] = std::sqrt(k[d] / n_keys);
  }
  const double q_floor = kFloor * std::accumulate(q.begin(), q.end(), 0.0) / static_cast<double>(dim_);
  const double k_floor = kFloor * std::accumulate(k.begin(), k.end(), 0.0) / static_cast<double>(dim_);
  float* out = statistics.key_balance.data() + kv_head_ * dim_;
  for (size_t d = 0; d < dim_; ++d) {
    const double ratio = (k[d] + k_floor) / (q[d] + q_floor);
    out[d] = ratio > 0 && std::isfinite(ratio) ? static_cast<float>(std::sqrt(ratio)) : 1.0f;
  }
}

// The rows that the last query likes best, in their order.
void HeadStatistics::choose_rows(const PromptObserver& observer, size_t n_due, uint32_t* kept,
                                 size_t n_kept) const {
  if (n_kept == 0) return;
  const float* q = observer.last_query.data() + kv_head_ * dim_;
  std::vector<double> scores(n_due);
  for (size_t t = 0; t < n_due; ++t) {
    for (size_t d = 0; d < dim_; ++d) scores[t] += double{q[d]} * key(t)[d];
  }
  std::vector<uint32_t> order(n_due - recipe_.sink_tokens);
  std::iota(order.begin(), order.end(), static_cast<uint32_t>(recipe_.sink_tokens));
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return scores[a] > scores[b]; });
  std::copy_n(order.begin(), n_kept, kept);
  std::sort(kept, kept + n_kept);
}

// The largest size of each channel, and for each pattern of four signs the mean of the parts that have it. A
// pattern that none has stands for its signs times the channels' mean size.
void HeadStatistics::measure_signs(const uint32_t* kept, size_t n_kept, LayerStatistics& statistics) const {
  const float* mean = statistics.key_mean.data() + kv_head_ * dim_;
  float* largest = statistics.key_balance.data() + kv_head_ * dim_;
  std::vector<size_t> rows;
  for (size_t t = recipe_.sink_tokens; t < view_.n_tokens; ++t) {
    if (!std::binary_search(kept, kept + n_kept, static_cast<uint32_t>(t))) rows.push_back(t);
  }
  std::vector<double> size(dim_, 0.0);
  for (const size_t t : rows) {
    for (size_t d = 0; d < dim_; ++d) {
      const float x = std::abs(key(t)[d] - mean[d]);
      largest[d] = std::max(largest[d], x);
      size[d] += x / static_cast<double>(rows.size());
    }
  }
  const float floor = kFloor * std::accumulate(largest, largest + dim_, 0.0f) / static_cast<float>(dim_);
  for (size_t d = 0; d < dim_; ++d) largest[d] = std::max({largest[d], floor, 1e-30f});
  const size_t n_groups = code_groups(dim_);
  std::vector<double> sums(n_groups * kWords * kGroupDims, 0.0);
  std::vector<size_t> counts(n_groups * kWords, 0);
  for (const size_t t : rows) {
    for (size_t g = 0; g < (dim_ + kGroupDims - 1) / kGroupDims; ++g) {
      const size_t n = std::min(kGroupDims, dim_ - g * kGroupDims);
      size_t word = 0;
      float x[kGroupDims];
      for (size_t j = 0; j < n; ++j) {
        x[j] = (key(t)[4 * g + j] - mean[4 * g + j]) / largest[4 * g + j];
        word |= static_cast<size_t>(!(x[j] < 0)) << j;
      }
      ++counts[g * kWords + word];
      for (size_t j = 0; j < n; ++j) sums[(g * kWords + word) * kGroupDims + j] += x[j];
    }
  }
  float* codebook = statistics.codebook.data() + kv_head_ * n_groups * kWords * kGroupDims;
  for (size_t i = 0; i < sums.size(); ++i) {
    const size_t g = i / (kWords * kGroupDims);
    const size_t word = i / kGroupDims % kWords;
    const size_t d = g * kGroupDims + i % kGroupDims;
    const size_t count = counts[g * kWords + word];
    if (d >= dim_) {
      codebook[i] = 0;
    } else if (count > 0) {
      codebook[i] = static_cast<float>(sums[i] / static_cast<double>(count));
    } else {
      codebook[i] = static_cast<float>((word >> (i % kGroupDims) & 1 ? 1 : -1) * size[d] / largest[d]);
    }
  }
}

HeadFrames Cache::frames(size_t layer, size_t head) const {
  const HeadFrames frames = statistics_->frames(layer, head);
  const PromptObserver& prompt = prompt_[layer];
  return prompt.made ? prompt.made->apply(frames, head, geometry_.head_dim) : frames;
}

void Cache::crop(size_t n_tokens) {
  const size_t before = this->n_tokens();
  if (is_broken_ && n_tokens > 0) throw Error("of a step that was given up nothing can be kept: crop(0)");
  store_.crop(n_tokens);
  if (reserving_ && n_tokens < before) reserving_->crop(n_tokens);
  if (n_tokens > 0) return;
  is_broken_ = false;
  sealing_ = {};
  prompt_.assign(prompt_.size(), {});
  if (hot_) hot_->policy.clear();
  if (dropping_) dropping_->clear();
  if (key_reserving_) key_reserving_->clear();
}

// Until the layer's first pages are coded.
void Cache::observe_queries(Worker& worker, size_t layer, size_t n, const float* q, size_t ldq) {
  const size_t n_heads = store_.layout(layer).n_kv_heads;
  PromptObserver& observer = prompt_[layer];
  if (worker.rank() == 0) {
    observer.query_squares.resize(n_heads * geometry_.head_dim);
    observer.last_query.resize(n_heads * geometry_.head_dim);
    observer.n_queries += n * (geometry_.n_heads / n_heads);
  }
  worker.barrier();
  worker.share(static_cast<int64_t>(n_heads), 1, [&](int64_t head, int64_t) {
    observe_head(q, ldq, n, static_cast<size_t>(head), geometry_.n_heads / n_heads, geometry_.head_dim,
                 observer);
  });
}

void Cache::make_statistics(Worker& worker, size_t layer, size_t n_total) {
  if (prompt_[layer].made) return;
  const LayerView view = store_.view(layer, n_total);
  const size_t n_heads = view.layout->n_kv_heads;
  const size_t n_pages = view.layer->sealed_pages(n_total);
  const size_t n_due = n_pages * kTokensPerPage;
  const size_t n_kept = std::min(recipe_.full_rows, n_due - recipe_.sink_tokens);
  if (worker.rank() == 0) {
    // Zeros where nothing has been asked of the layer yet.
    prompt_[layer].query_squares.resize(n_heads * geometry_.head_dim);
    prompt_[layer].last_query.resize(n_heads * geometry_.head_dim);
    making_ = sized_statistics(recipe_, n_heads, geometry_.head_dim);
    making_positions_.resize(n_heads * n_kept);
  }
  worker.barrier();
  worker.share(static_cast<int64_t>(n_heads), 1, [&](int64_t item, int64_t) {
    const auto head = static_cast<size_t>(item);
    HeadStatistics(recipe_, view, head, statistics_->frames(layer, head).key_bias)
        .measure(prompt_[layer], n_due, making_positions_.data() + head * n_kept, n_kept, making_);
  });
  if (worker.rank() == 0) {
    if (n_kept > 0) store_.keep_rows(layer, making_positions_, n_pages);
    prompt_[layer] = {};
    prompt_[layer].made = std::make_shared<const LayerStatistics>(std::move(making_));
  }
  worker.barrier();
}

}  // namespace quire
