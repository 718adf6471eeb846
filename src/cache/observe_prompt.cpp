// What the last queries of a prompt like, of the tokens that are coded when it ends. All these queries see
// them, unless the tail is short: then a token's score is the mean over those that do. (A mean over all
// queries of the prompt, as published, favours early tokens, which more of them see.)
#include <algorithm>

#include "cache/cache.h"
#include "cache/hot_rows.h"
#include "cache/lane.h"

namespace quire {

// Before the layer's pages are coded.
void Cache::observe_prompt(Worker& worker, size_t layer) {
  const size_t n_total = n_tokens() + step_tokens_;
  const size_t n_cold_pages = store_.layer_layout(layer).sealed_pages(n_total);
  const LayerView view = store_.view(layer, n_total);
  const size_t n_heads = view.layout->n_kv_heads;
  if (n_cold_pages == 0 || n_heads == 0) return;
  const size_t n_parts = Parts(view, n_total).size();
  const size_t n_rows = kObservedQueries * (geometry_.n_heads / n_heads);
  if (worker.rank() == 0) {
    head_queries_.resize(n_heads);
    hot_->log_sums.resize(n_heads * n_parts * n_rows);
    hot_->token_sums.assign(n_heads * n_cold_pages * kTokensPerPage, 0.0f);
  }
  worker.barrier();
  observe_parts(worker, layer, view);
  observe_pages(worker, layer, view, n_cold_pages);
  if (worker.rank() == 0) {
    const size_t n_cold = n_cold_pages * kTokensPerPage;
    stats_.token_scores.resize(n_cold, 0.0f);
    for (size_t i = 0; i < n_heads * n_cold; ++i) stats_.token_scores[i % n_cold] += hot_->token_sums[i];
    ++stats_.observed_layers;
  }
}

// The sums that probabilities are shares of: log_sums of part 0 become those of all parts.
void Cache::observe_parts(Worker& worker, size_t layer, const LayerView& view) {
  const size_t n_heads = view.layout->n_kv_heads;
  const size_t dim = geometry_.head_dim;
  const size_t group = geometry_.n_heads / n_heads;
  const size_t n_rows = kObservedQueries * group;
  const Parts parts(view, view.n_tokens);
  const Selection everything = Selection::all();
  worker.share(static_cast<int64_t>(n_heads), 1, [&](int64_t item, int64_t) {
    const auto head = static_cast<size_t>(item);
    HeadQueries& own = head_queries_[head];
    own.q.resize(n_rows * dim);
    for (size_t i = 0; i < kObservedQueries; ++i) {
      std::copy_n(hot_->queries.data() + i * geometry_.n_heads * dim + head * group * dim, group * dim,
                  own.q.data() + i * group * dim);
    }
    own.rows = framed_queries(own.framed, parts, layer, head,
                              {own.q.data(), kObservedQueries, group, view.n_tokens - kObservedQueries});
  });
  worker.share(static_cast<int64_t>(parts.size() * n_heads), 1, [&](int64_t item, int64_t) {
    const size_t head = static_cast<size_t>(item) / parts.size();
    const Parts::Part part = parts[static_cast<size_t>(item) % parts.size()];
    Lane& lane = *lanes_[static_cast<size_t>(worker.rank())];
    const HeadFrames own = frames(layer, head);
    lane.part.clear(n_rows, part.kind == Parts::Kind::kSealed ? sealed_width(own, n_rows, dim) : dim);
    attend_part(view, head, part, head_queries_[head].rows, everything, &own, lane.scratch, lane.part);
    double* log_sums = hot_->log_sums.data() + static_cast<size_t>(item) * n_rows;
    for (size_t row = 0; row < n_rows; ++row) log_sums[row] = lane.part.log_sum(row);
  });
  worker.share(static_cast<int64_t>(n_heads), 1, [&](int64_t head, int64_t) {
    double* all = hot_->log_sums.data() + static_cast<size_t>(head) * parts.size() * n_rows;
    for (size_t i = n_rows; i < parts.size() * n_rows; ++i) {
      all[i % n_rows] = add_logs(all[i % n_rows], all[i]);
    }
  });
}

namespace {

// Attention to one page from a state whose maxima are the sums of everything: the weights left in the scratch
// are probabilities.
const float* page_probabilities(const LayerView& view, size_t head, const Parts::Part& part,
                                const QueryRows& queries, const double* log_sums, const HeadFrames& frames,
                                AttendScratch& scratch, PartialState& state) {
  const size_t n_rows = queries.n_queries * queries.group;
  const size_t dim = view.layout->head_dim;
  state.clear(n_rows, part.kind == Parts::Kind::kSealed ? sealed_width(frames, n_rows, dim) : dim);
  for (size_t row = 0; row < n_rows; ++row) {
    state.m[row] = static_cast<float>(log_sums[row]);
    state.l[row] = 1.0f;
  }
  attend_part(view, head, part, queries, Selection::all(), &frames, scratch, state);
  return scratch.scores.data();
}

}  // namespace

// Items are the pages of coded rows' copies, then those that are coded or about to be.
void Cache::observe_pages(Worker& worker, size_t layer, const LayerView& view, size_t n_cold_pages) {
  const size_t n_heads = view.layout->n_kv_heads;
  const size_t n_parts = Parts(view, view.n_tokens).size();
  const size_t n_beside = view.n_beside();
  const size_t n_sealed = view.n_sealed();
  const size_t n_items = n_beside + n_cold_pages;
  const size_t page_tokens = hot_->policy.settings().page_tokens;
  worker.share(static_cast<int64_t>(n_items * n_heads), 1, [&](int64_t item, int64_t) {
    const size_t head = static_cast<size_t>(item) / n_items;
    const size_t i = static_cast<size_t>(item) % n_items;
    const size_t page = i < n_beside ? i : i - n_beside;
    const Parts::Kind kind = i < n_beside      ? Parts::Kind::kKept
                             : page < n_sealed ? Parts::Kind::kSealed
                                               : Parts::Kind::kOpen;
    const uint64_t tokens = i < n_beside      ? view.beside_word(page)
                            : page < n_sealed ? view.coded_word(head, page)
                                              : ~uint64_t{0};
    if (tokens == 0) return;
    Lane& lane = *lanes_[static_cast<size_t>(worker.rank())];
    const QueryRows& queries = head_queries_[head].rows;
    const size_t n_rows = queries.n_queries * queries.group;
    const float* p = page_probabilities(view, head, {kind, page, page + 1}, queries,
                                        hot_->log_sums.data() + head * n_parts * n_rows, frames(layer, head),
                                        lane.scratch, lane.part);
    float* sums = hot_->token_sums.data() + head * n_cold_pages * kTokensPerPage;
    for (size_t lane_at = 0; lane_at < kTokensPerPage; ++lane_at) {
      if ((tokens >> lane_at & 1) == 0) continue;
      float sum = 0;
      for (size_t row = 0; row < n_rows; ++row) sum += p[row * kTokensPerPage + lane_at];
      const size_t slots = kTokensPerPage / page_tokens;
      const size_t token = i < n_beside
                               ? view.copies->page_in(page * slots + lane_at / page_tokens) * page_tokens +
                                     lane_at % page_tokens
                               : page * kTokensPerPage + lane_at;
      sums[token] += sum / static_cast<float>(std::min(kObservedQueries, view.n_tokens - token));
    }
  });
}

}  // namespace quire
