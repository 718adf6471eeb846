#include "cache/hot_rows.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "cache/cache.h"

namespace quire {

SparseLimits hot_limits(const IndexBudget& budget, size_t n_coded) {
  StepBudget step = step_budget(budget, 0, n_coded);
  if (step.everything) step = {true, n_coded, n_coded, 0};
  return {step.n_candidates, step.n_rows, step.mass, budget.mean_query};
}

namespace {

// Where no layer has room for copies, as all are read whole, there is none.
HotPageSettings settings_of(const Recipe& recipe, const Store& store) {
  HotPageSettings settings = HotPageSettings::of(recipe.promote, recipe.tail_tokens, recipe.sink_tokens);
  size_t n_slots = 0;
  for (size_t layer = 0; layer < store.n_layers(); ++layer) {
    n_slots = std::max(n_slots, store.layer_layout(layer).copy_slots);
  }
  settings.capacity_pages = std::min(settings.capacity_pages, n_slots);
  return settings;
}

}  // namespace

HotRows::HotRows(const Recipe& recipe, const Store& store) : policy(settings_of(recipe, store)) {}

void HotRows::begin_layer(const LayerView& view, size_t group) {
  const size_t n_heads = view.layout->n_kv_heads;
  const size_t page_tokens = policy.settings().page_tokens;
  group_ = group;
  n_pages_ = (view.n_sealed() * kTokensPerPage + page_tokens - 1) / page_tokens;
  n_copy_pages_ = view.copies != nullptr ? view.copies->n_pages() : 0;
  slots_per_page_ = kTokensPerPage / page_tokens;
  slot_sums_.assign(n_heads * n_copy_pages_ * group * slots_per_page_, 0.0f);
  tops_.assign(n_heads * n_copy_pages_ * group, 0.0f);
  page_scores_.assign(n_heads * n_pages_, 0.0f);
}

void HotRows::take_copies(const LayerView& view, size_t kv_head, size_t at, const float* weights,
                          const PartialState& state) {
  const uint64_t lanes = view.copies->lanes(at);
  if (lanes == 0) return;  // nothing was attended to
  const size_t page_tokens = policy.settings().page_tokens;
  float* sums = slot_sums(kv_head, at);
  for (size_t row = 0; row < group_; ++row) {
    tops(kv_head, at)[row] = state.m[row];
    for (size_t lane = 0; lane < slots_per_page_ * page_tokens; ++lane) {
      if ((lanes >> lane & 1) == 0) continue;
      sums[row * slots_per_page_ + lane / page_tokens] += weights[row * kTokensPerPage + lane];
    }
  }
}

void HotRows::score_pages(const LayerView& view, size_t kv_head, const PartialState& total,
                          const SparseHead& sparse) {
  std::vector<double> all(group_);
  for (size_t row = 0; row < group_; ++row) all[row] = total.log_sum(row);
  float* scores = page_scores_.data() + kv_head * n_pages_;
  sparse.add_probabilities(all.data(), policy.settings().page_tokens, scores);
  for (size_t at = 0; at < n_copy_pages_; ++at) {
    for (size_t row = 0; row < group_; ++row) {
      const auto share = static_cast<float>(std::exp(tops(kv_head, at)[row] - all[row]));
      for (size_t i = 0; i < slots_per_page_; ++i) {
        const size_t slot = at * slots_per_page_ + i;
        if (slot >= view.copies->n_slots() || view.copies->page_in(slot) == CopyTable::kFree) continue;
        scores[view.copies->page_in(slot)] += slot_sums(kv_head, at)[row * slots_per_page_ + i] * share;
      }
    }
  }
}

void HotRows::end_layer(const LayerView& view, StepStats& stats) const {
  stats.page_scores.resize(std::max(stats.page_scores.size(), n_pages_), 0.0f);
  for (size_t head = 0; head < view.layout->n_kv_heads; ++head) {
    for (size_t page = 0; page < n_pages_; ++page) {
      stats.page_scores[page] += page_scores_[head * n_pages_ + page];
    }
  }
  ++stats.scored_layers;
}

void HotRows::save_queries(size_t step_tokens, size_t first, size_t n, const float* q, size_t ldq,
                           size_t width) {
  queries.resize(kObservedQueries * width);
  const size_t first_observed = step_tokens - kObservedQueries;
  for (size_t i = 0; i < n; ++i) {
    if (first + i < first_observed) continue;
    std::copy_n(q + i * ldq, width,
                queries.begin() + static_cast<ptrdiff_t>((first + i - first_observed) * width));
  }
}

// Layers with a key bias are read whole, and have no copies.
std::vector<LayerLayout> Cache::own_layouts(const Recipe& recipe, const Geometry& geometry,
                                            const CacheStatistics& statistics) {
  std::vector<LayerLayout> layouts = layer_layouts(recipe, geometry);
  for (size_t layer = 0; layer < layouts.size() && recipe.promote.given(); ++layer) {
    if (statistics.has_key_bias(layer)) layouts[layer].copy_slots = 0;
  }
  return layouts;
}

// Of one KV head, by what its exact rows came to.
bool Cache::reads_cold(const PartialState& exact, SparseHead& sparse) const {
  const HotPageSettings& settings = hot_->policy.settings();
  double most = 0;
  switch (settings.trigger) {
    case ColdTrigger::kOff: return false;
    case ColdTrigger::kMass:
      for (size_t row = 0; row < exact.n_rows; ++row) {
        const double log_sum = exact.log_sum(row);
        const double cold = sparse.cold_log_sum(row, log_sum);
        if (std::exp(cold - add_logs(cold, log_sum)) >= settings.cold) return true;
      }
      return false;
    case ColdTrigger::kScore:
      // The largest of the probabilities: exp(m - m) of a sum of l.
      for (size_t row = 0; row < exact.n_rows; ++row) {
        if (exact.l[row] > 0.0f) most = std::max(most, 1.0 / static_cast<double>(exact.l[row]));
      }
      sparse.index_was_read();
      return most < settings.promote;
  }
  return true;
}

void Cache::move_pages() {
  const std::vector<Move> moves = hot_->policy.plan(store_, stats_);
  store_.apply(moves, [this](size_t layer, size_t head) { return frames(layer, head); });
}

void Cache::restore_hot(std::vector<HotPages::Page> pages, const HotPages::Counters& counters,
                        std::span<const uint32_t> slots) {
  hot_->policy.restore(std::move(pages), counters);
  store_.restore_copies(slots, [this](size_t layer, size_t head) { return frames(layer, head); });
}

Residency Cache::residency() const {
  Residency residency;
  residency.total_tokens = n_tokens();
  bool first = true;
  // All layers code the same pages; those without copies read what the others have copied as codes.
  for (size_t layer = 0; layer < store_.n_layers(); ++layer) {
    const LayerView view = store_.view(layer, n_tokens());
    if (view.layout->n_kv_heads == 0 || is_windowed(layer)) continue;
    const size_t n_coded = view.n_sealed() * kTokensPerPage;
    const uint64_t n_cold =
        n_coded > 0 && !view.layer->sealed.is_exact() ? n_coded - view.n_exact_sealed() : 0;
    const size_t n_sinks = n_coded == 0 && view.sinks != nullptr ? view.layer->sink_tokens : 0;
    residency.dropped_tokens = n_tokens() - view.n_tokens - n_sinks;
    for (size_t page = 0; first && page < view.n_sealed(); ++page) {
      residency.outside_tokens += view.is_outside(page) ? kTokensPerPage : 0;
    }
    residency.cold_tokens = first ? n_cold : std::min(residency.cold_tokens, n_cold);
    first = false;
  }
  residency.hot_tokens = residency.total_tokens - residency.cold_tokens - residency.dropped_tokens;
  if (!hot_) return residency;
  for (size_t slot = 0; slot < store_.copies().n_slots(); ++slot) {
    const uint32_t page = store_.copies().page_in(slot);
    if (page == CopyTable::kFree || !hot_->policy.pages()[page].stays()) continue;
    residency.sticky_tokens += store_.copies().rows_of(page);
  }
  const HotPages::Counters& counters = hot_->policy.counters();
  residency.promotions = counters.promotions;
  residency.page_ins = counters.page_ins;
  residency.page_outs = counters.page_outs;
  return residency;
}

}  // namespace quire
