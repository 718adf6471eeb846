// What policies see of queries; and a decoded token that reads the rows a selector chooses: the choice, and
// what is counted of it.
#include <bit>
#include <cmath>

#include "cache/cache.h"
#include "cache/hot_rows.h"
#include "cache/lane.h"
#include "cache/row_scores.h"

namespace quire {

bool Cache::selects(size_t layer, const LayerView& view) const {
  return step_tokens_ == 1 && view.window_tokens() == 0 && selector_->selects(layer, view.n_tokens);
}

void Cache::predict(Worker& worker, size_t layer, const float* input) {
  const PredictionCounts counts = selector_->predict(worker, store_, layer, input);
  if (worker.rank() != 0) return;
  stats_.predictions.predictor_calls += counts.predictor_calls;
  stats_.predictions.neighbour_rows += counts.neighbour_rows;
  stats_.predictions.weight_bytes += counts.weight_bytes;
  stats_.bytes_read += counts.weight_bytes;
  if (observer_ != nullptr) observer_->named(layer + 1, selector_->predicted(layer));
  look_ahead(layer + 1);
}

// What the recipe wants to know of the queries before they attend.
void Cache::watch_queries(Worker& worker, size_t layer, const LayerView& view, size_t first, size_t n,
                          const float* q, size_t ldq) {
  if (recipe_.prompt_statistics && view.n_sealed() == 0) observe_queries(worker, layer, n, q, ldq);
  if (selector_->observes(store_)) observe_selector(worker, layer, view, first, n, q, ldq);
  if (hot_ && hot_->observes(step_tokens_) && worker.rank() == 0) {
    hot_->save_queries(step_tokens_, first, n, q, ldq, geometry_.n_heads * geometry_.head_dim);
  }
}

void Cache::observe_selector(Worker& worker, size_t layer, const LayerView& view, size_t first, size_t n,
                             const float* q, size_t ldq) {
  const size_t n_kv_heads = view.layout->n_kv_heads;
  const size_t group = geometry_.n_heads / n_kv_heads;
  worker.share(static_cast<int64_t>(n_kv_heads), 1, [&](int64_t item, int64_t) {
    const auto head = static_cast<size_t>(item);
    const HeadStep step{&view, layer, head, group, q + head * group * geometry_.head_dim};
    selector_->observe(step, n_tokens() + first, n, ldq);
  });
}

void Cache::finish_digests(Worker& worker, size_t layer, size_t n_total) {
  const size_t n_kv_heads = store_.layout(layer).n_kv_heads;
  worker.share(static_cast<int64_t>(n_kv_heads), 1, [&](int64_t head, int64_t) {
    selector_->end_layer(store_, layer, static_cast<size_t>(head), n_total);
  });
}

void Cache::begin_selection(const LayerView& view) {
  selection_ = Selection(view.layout->n_kv_heads, view.pages.size());
  selected_mass_.assign(view.layout->n_kv_heads, 0.0);
}

void Cache::select_rows(size_t layer, const LayerView& view, size_t head) {
  const QueryRows& rows = head_queries_[head].rows;
  const HeadFrames own = frames(layer, head);
  selector_->select({&view, layer, head, rows.group, rows.q, rows.framed, rows.bias, &own}, selection_);
}

// Of the state that the selected rows have given.
void Cache::measure_selection(Lane& lane, size_t layer, const LayerView& view, size_t head) {
  const HeadFrames own = frames(layer, head);
  const std::vector<double> all = log_sums_of_all(view, head, head_queries_[head].rows, &own, lane.scratch);
  for (size_t row = 0; row < all.size(); ++row) {
    selected_mass_[head] += std::exp(lane.total.log_sum(row) - all[row]);
  }
}

namespace {

uint64_t count(uint64_t word) { return static_cast<uint64_t>(std::popcount(word)); }

// Tokens of a page that there are.
uint64_t tokens_of(const LayerView& view, size_t page) {
  const size_t first = page * kTokensPerPage;
  if (first + kTokensPerPage <= view.n_tokens) return ~uint64_t{0};
  return first < view.n_tokens ? (uint64_t{1} << (view.n_tokens - first)) - 1 : 0;
}

}  // namespace

// Keys of a page lie side by side by channels, so that one row of them costs the page's keys.
uint64_t Cache::selected_bytes(const LayerView& view, size_t head, uint64_t& n_rows) const {
  const bool all_keys = selector_->reads_all_keys();
  const RowLayout& open = *view.layout;
  const SealedLayout& sealed = view.layer->sealed;
  const size_t n_sealed = view.n_sealed();
  const uint64_t value_row = open.value_bytes() / kTokensPerPage;
  const uint64_t exact_key = open.key_bytes() / kTokensPerPage;
  uint64_t n_bytes = selector_->digest_bytes_read(view);
  for (size_t page = 0; page < view.pages.size(); ++page) {
    const uint64_t word = selection_.word(head, page) & tokens_of(view, page);
    const bool is_sealed = page < n_sealed;
    const uint64_t rows = is_sealed ? word & view.coded_word(head, page) : word;
    n_rows += count(rows);
    if (rows != 0 || all_keys) {
      n_bytes += is_sealed ? sealed.key_bytes() + sealed.index_bytes() : open.key_bytes();
      if (is_sealed && view.exact_keys != nullptr) n_bytes += view.exact_keys->n_of(page) * exact_key;
    }
    n_bytes += count(rows) * (is_sealed ? sealed.value_bytes() / kTokensPerPage : value_row);
  }
  const uint64_t exact_row = open.key_bytes() / kTokensPerPage + value_row;
  uint64_t n_exact = view.kept != nullptr ? view.kept->n : 0;  // read in any case
  if (view.sinks != nullptr) {
    n_exact += count(selection_.word(head, 0) & ((uint64_t{1} << view.layer->sink_tokens) - 1));
  }
  n_rows += n_exact;
  return n_bytes + n_exact * exact_row;
}

void Cache::count_selection(const LayerView& view) {
  for (size_t head = 0; head < view.layout->n_kv_heads; ++head) {
    uint64_t n_rows = 0;
    stats_.bytes_read += selected_bytes(view, head, n_rows);
    stats_.rows_read += n_rows;
    stats_.mass_sum += selected_mass_[head];
  }
  if (measures_mass_) stats_.mass_count += geometry_.n_heads;
}

}  // namespace quire
