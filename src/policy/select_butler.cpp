#include "policy/select_butler.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/team.h"
#include "policy/butler_predictor.h"
#include "policy/highest.h"
#include "policy/projected_keys.h"
#include "store/page_count.h"

namespace quire {

namespace {

constexpr size_t kStateHeader = 2;

// How the heads of a group make one value of a row; in the order of the setting's words.
enum class Pooling : uint8_t { kSum, kProbability, kScore };

// Of all rows of a step.
struct Shares {
  size_t sinks;
  size_t local;
  size_t named;
};

// The rows first..last - 1, all of them projected, of which so many are to be named.
struct Candidates {
  size_t first;
  size_t last;
  size_t n_named;

  size_t first_page() const { return first / kTokensPerPage; }
  size_t end_page() const { return pages_for(last); }
};

// The highest score of any head: scores [n_tiles][group][64] -> best [n_tiles * 64].
void best_scores(const float* scores, size_t n_tiles, size_t group, std::vector<float>& best) {
  best.assign(n_tiles * kTokensPerPage, kNoScore);
  for (size_t i = 0; i < n_tiles * group * kTokensPerPage; ++i) {
    float& to = best[i / (group * kTokensPerPage) * kTokensPerPage + i % kTokensPerPage];
    to = scores[i] > to ? scores[i] : to;  // what is no number stays out
  }
}

class SelectButler : public Selector {
 public:
  SelectButler(const PolicyChoice& choice, std::shared_ptr<const ButlerWeights> weights)
      : budget_(choice.budget),
        n_sinks_(choice.number("sink")),
        n_local_(choice.number("local")),
        interval_(choice.number("interval")),
        adds_neighbours_(choice.number("neighbours") == 1),
        pooling_(static_cast<Pooling>(choice.number("heads"))),
        layout_(choice),
        predictor_(std::move(weights)),
        named_(predictor_.geometry().n_layers, Selection::all()) {}

  std::unique_ptr<Selector> copy() const override { return std::make_unique<SelectButler>(*this); }

  bool selects(size_t layer, size_t) const override { return sparse_ && !named_[layer].is_all(); }

  bool may_select(size_t layer, size_t) const override { return sparse_ && layer > 0; }

  bool repeats() const override { return sparse_ && !due_; }

  bool select_ahead(const HeadStep& step, Selection& selection) override {
    if (!selects(step.layer, step.view->n_tokens)) return false;
    select(step, selection);
    return true;
  }

  void select(const HeadStep& step, Selection& selection) override {
    const size_t n_tokens = step.view->n_tokens;
    const Shares shares = shares_of(n_tokens);
    selection.mark_range(step.kv_head, 0, shares.sinks);
    selection.mark_range(step.kv_head, n_tokens - shares.local, n_tokens);
    const Selection& named = named_[step.layer];
    for (size_t page = 0; page < named.n_pages(); ++page) {
      selection.mark_word(step.kv_head, page, named.word(step.kv_head, page));
    }
  }

  uint64_t digest_bytes_read(const LayerView& view) const override {
    if (!due_) return 0;
    const Candidates candidates = candidates_of(view.n_tokens);
    if (candidates.n_named == 0) return 0;
    const size_t last =
        std::min(candidates.end_page() * kTokensPerPage, layout_.n_projected(view.n_tokens - 1));
    return (last - candidates.first_page() * kTokensPerPage) * layout_.row_bytes();
  }

  // Whole batches, page by page.
  void append(Store& store, size_t layer, size_t kv_head, size_t first, size_t n) override {
    if (layer == 0) return;
    const LayerView view = store.view(layer, first + n);
    const size_t end = layout_.n_projected(first + n);
    std::vector<float> room;
    for (size_t begin = layout_.n_projected(first); begin < end;) {
      const size_t page = begin / kTokensPerPage;
      const size_t count = std::min(end, (page + 1) * kTokensPerPage) - begin;
      project_keys(layout_, predictor_.projection(layer, kv_head), view.layout->head_dim,
                   view.layout->key_format, view.keys(kv_head, page), begin % kTokensPerPage, count, room,
                   store.open_digest(layer, kv_head, page));
      begin += count;
    }
  }

  void begin_step(size_t n_tokens, size_t n_new) override {
    const bool goes_on = n_tokens == n_expected_ && was_single_ && n_new == 1;
    if (!goes_on) named_at_.reset();  // cut, or with many new rows that nothing names
    sparse_ = goes_on && budget_.of(n_tokens + 1) < n_tokens + 1;
    due_ = sparse_ && (!named_at_ || n_tokens - *named_at_ >= interval_);
    if (due_) named_at_ = n_tokens;
    if (due_ || !named_at_) forget_named();
    was_single_ = n_new == 1;
    n_expected_ = n_tokens + n_new;
  }

  bool predicts(size_t layer) const override {
    const ButlerGeometry& g = predictor_.geometry();
    return due_ && layer % g.stride == 0 && layer + 1 < g.n_layers;
  }

  PredictionCounts predict(Worker& worker, const Store& store, size_t layer, const float* input) override {
    const ButlerGeometry& g = predictor_.geometry();
    const size_t producer = layer / g.stride;
    const size_t n_items = g.n_slots(producer) * g.n_kv_heads;
    if (worker.rank() == 0) begin_prediction(store, producer, n_items);
    std::vector<float> normed(g.width);
    predictor_.normalise(producer, input, normed.data());  // each member for itself, as it is short
    worker.barrier();
    const auto rows = static_cast<int64_t>(ButlerPredictor::kRows);
    worker.share(static_cast<int64_t>(g.hidden), rows, [&](int64_t first, int64_t last) {
      predictor_.hidden(producer, normed.data(), static_cast<size_t>(first), static_cast<size_t>(last),
                        hidden_.data());
    });
    worker.share(static_cast<int64_t>(g.query_values(producer)), rows, [&](int64_t first, int64_t last) {
      predictor_.queries(producer, hidden_.data(), static_cast<size_t>(first), static_cast<size_t>(last),
                         queries_.data());
    });
    worker.share(static_cast<int64_t>(n_items), 1, [&](int64_t item, int64_t) {
      const auto i = static_cast<size_t>(item);
      n_neighbours_[i] = name_rows(store, layer, i / g.n_kv_heads, i % g.n_kv_heads);
    });
    PredictionCounts counts{1, 0, predictor_.weight_bytes(producer)};
    for (size_t i = 0; i < n_items; ++i) counts.neighbour_rows += n_neighbours_[i];
    return counts;
  }

  std::span<const Selection> predicted(size_t layer) const override {
    const ButlerGeometry& g = predictor_.geometry();
    return std::span(named_).subspan(layer + 1, g.n_slots(layer / g.stride));
  }

  std::vector<uint64_t> state(size_t n_tokens) const override {
    if (n_tokens != n_expected_) return {0, 0};
    const bool named = named_at_ && !named_[1].is_all();
    std::vector<uint64_t> values = {was_single_, named ? *named_at_ + 1 : 0};
    for (size_t layer = 1; named && layer < named_.size(); ++layer) {
      for (size_t i = 0; i < predictor_.geometry().n_kv_heads * pages_for(*named_at_); ++i) {
        values.push_back(named_[layer].word(i / pages_for(*named_at_), i % pages_for(*named_at_)));
      }
    }
    return values;
  }

  void restore_state(size_t n_tokens, std::span<const uint64_t> values) override {
    n_expected_ = n_tokens;
    was_single_ = values[0] != 0;
    named_at_.reset();
    forget_named();
    if (values[1] == 0) return;
    named_at_ = values[1] - 1;
    const size_t n_pages = pages_for(*named_at_);
    const size_t n_heads = predictor_.geometry().n_kv_heads;
    values = values.subspan(kStateHeader);
    for (size_t layer = 1; layer < named_.size(); ++layer, values = values.subspan(n_heads * n_pages)) {
      named_[layer] = Selection(n_heads, n_pages);
      for (size_t i = 0; i < n_heads * n_pages; ++i) {
        named_[layer].mark_word(i / n_pages, i % n_pages, values[i]);
      }
    }
  }

  uint64_t size_bytes() const override {
    uint64_t total = 0;
    for (const Selection& named : named_) total += named.size_bytes();
    return total;
  }

  // What is named of all layers, and what each member compares: see value_rows() and sum_probabilities() of
  // policy/highest.cpp.
  uint64_t step_bytes(size_t n_tokens, size_t n_members) const override {
    const ButlerGeometry& g = predictor_.geometry();
    const size_t group = g.n_heads / g.n_kv_heads;
    const uint64_t n_pages = pages_for(n_tokens);
    const uint64_t n_floats =
        n_pages * kTokensPerPage * (2 * group + 2);  // scores, weights, values and their copy
    const uint64_t n_chosen = (adds_neighbours_ ? 4 : 2) * (budget_.of(n_pages * kTokensPerPage) + 1);
    return (g.n_layers - 1) * g.n_kv_heads * n_pages * sizeof(uint64_t) +
           n_members * (n_floats * sizeof(float) + n_chosen * sizeof(size_t));
  }

  // What was named are places of rows.
  void rows_moved() override {
    named_at_.reset();
    forget_named();
  }

 private:
  // Where a budget does not cover sinks and local rows, the newest rows are what is left.
  Shares shares_of(size_t n_tokens) const {
    const size_t n_rows = budget_.of(n_tokens);
    const size_t local = std::min(n_local_, n_rows);
    const size_t sinks = std::min(n_sinks_, n_rows - local);
    return {sinks, local, n_rows - local - sinks};
  }

  // As in training: what is neither a sink nor local.
  Candidates candidates_of(size_t n_tokens) const {
    const Shares shares = shares_of(n_tokens);
    const size_t last = n_tokens - shares.local;
    return {shares.sinks, last, last > shares.sinks ? shares.named : 0};
  }

  // And gives the memory back.
  void forget_named() {
    for (Selection& named : named_) named = Selection::all();
  }

  void begin_prediction(const Store& store, size_t producer, size_t n_items) {
    const ButlerGeometry& g = predictor_.geometry();
    hidden_.resize(g.hidden);
    queries_.resize(g.query_values(producer));
    n_neighbours_.assign(n_items, 0);
    const size_t first = g.producer_layer(producer) + 1;
    for (size_t i = 0; i < g.n_slots(producer); ++i) {
      named_[first + i] = Selection(g.n_kv_heads, pages_for(store.n_tokens()));
    }
  }

  // Of one KV head of a layer that the producer serves; how many are there as neighbours.
  size_t name_rows(const Store& store, size_t producer_layer, size_t slot, size_t kv_head) {
    const ButlerGeometry& g = predictor_.geometry();
    const size_t layer = producer_layer + 1 + slot;
    const size_t n_tokens = store.n_tokens();
    const Candidates candidates = candidates_of(n_tokens + 1);
    if (candidates.n_named == 0) return 0;
    const size_t group = g.n_heads / g.n_kv_heads;
    const LayerView view = store.view(layer, n_tokens);
    const float* q = queries_.data() + (slot * g.n_heads + kv_head * group) * g.dim;
    std::vector<float> values;
    std::vector<float> room;
    value_rows(view, kv_head, group, q, candidates, values, room);
    std::vector<size_t> chosen;
    choose_highest(values, candidates.n_named, room, [&](size_t token) { chosen.push_back(token); });
    size_t n_added = 0;
    if (adds_neighbours_) {
      std::reverse(chosen.begin(), chosen.end());
      const size_t n_own = chosen.size();
      chosen = with_neighbours(chosen, candidates.last, 2 * candidates.n_named);
      n_added = chosen.size() - n_own;
    }
    for (const size_t token : chosen) named_[layer].mark(kv_head, token);
    return n_added;
  }

  // What rows are chosen by: q [group][dim] -> values [candidates.last], kNoScore before the first.
  void value_rows(const LayerView& view, size_t kv_head, size_t group, const float* q,
                  const Candidates& candidates, std::vector<float>& values, std::vector<float>& room) const {
    std::vector<float> scores;
    score_rows(view, kv_head, group, q, candidates, scores, room);
    const size_t n_tiles = candidates.end_page() - candidates.first_page();
    switch (pooling_) {
      case Pooling::kSum: values_by_sum(scores.data(), n_tiles, group, values); break;
      case Pooling::kProbability: best_log_probabilities(scores.data(), n_tiles, group, values); break;
      case Pooling::kScore: best_scores(scores.data(), n_tiles, group, values); break;
    }
    values.insert(values.begin(), candidates.first_page() * kTokensPerPage, kNoScore);
    values.resize(pages_for(view.n_tokens) * kTokensPerPage, kNoScore);
    prefer_kept(view, kv_head, values);
    std::fill_n(values.begin(), candidates.first, kNoScore);
    values.resize(candidates.last);
  }

  // The estimates of the candidates, kNoScore for other rows and what is no number: scores
  // [page - first_page][group][64].
  void score_rows(const LayerView& view, size_t kv_head, size_t group, const float* q,
                  const Candidates& candidates, std::vector<float>& scores, std::vector<float>& room) const {
    const size_t first_page = candidates.first_page();
    const size_t end_page = candidates.end_page();
    scores.resize((end_page - first_page) * group * kTokensPerPage);
    float* to = scores.data();
    for (size_t page = first_page; page < end_page; ++page, to += group * kTokensPerPage) {
      const std::byte* next = page + 1 < end_page ? view.digest(kv_head, page + 1) : nullptr;
      score_projected(layout_, q, group, view.digest(kv_head, page), next, room, to);
    }
    for (float& score : scores) score = std::isnan(score) ? kNoScore : score;
    const size_t first_slot = candidates.first % kTokensPerPage;
    const size_t last_slot = (candidates.last - 1) % kTokensPerPage + 1;
    for (size_t h = 0; h < group; ++h) {
      float* first = scores.data() + h * kTokensPerPage;
      std::fill(first, first + first_slot, kNoScore);
      float* last = scores.data() + scores.size() - (group - h) * kTokensPerPage;
      std::fill(last + last_slot, last + kTokensPerPage, kNoScore);
    }
  }

  RowBudget budget_;
  size_t n_sinks_;
  size_t n_local_;
  size_t interval_;
  bool adds_neighbours_;
  Pooling pooling_;
  ProjectedLayout layout_;
  ButlerPredictor predictor_;

  // Of the sequence.
  size_t n_expected_ = 0;           // tokens, if nothing is cut
  bool was_single_ = false;         // the last step
  std::optional<size_t> named_at_;  // tokens that there were when rows were named
  std::vector<Selection> named_;    // [layer] all(): nothing is named

  // Of the step at hand.
  bool sparse_ = false;
  bool due_ = false;
  std::vector<float> hidden_;
  std::vector<float> queries_;        // [slot][query head][dim]
  std::vector<size_t> n_neighbours_;  // [slot][kv_head]
};

}  // namespace

std::vector<size_t> with_neighbours(std::span<const size_t> chosen, size_t last, size_t n_most) {
  std::vector<size_t> all(chosen.begin(), chosen.end());
  for (size_t begin = 0; begin < chosen.size();) {
    size_t end = begin + 1;
    while (end < chosen.size() && chosen[end] == chosen[end - 1] + 1) ++end;
    for (size_t i = begin; i < end; ++i) all.push_back(std::min(chosen[i] + (end - begin), last - 1));
    begin = end;
  }
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  while (!all.empty() && all.size() < n_most && all.back() + 1 < last) all.push_back(all.back() + 1);
  return all;
}

bool butler_state_fits(std::span<const uint64_t> state, std::span<const size_t> n_kv_heads, size_t n_tokens) {
  if (state.size() < kStateHeader || state[0] > 1 || state[1] > n_tokens) return false;
  if (state[1] == 0) return state.size() == kStateHeader;
  if (state[0] == 0) return false;  // rows are named for steps of one token
  size_t n_heads = 0;
  for (size_t layer = 1; layer < n_kv_heads.size(); ++layer) n_heads += n_kv_heads[layer];
  return state.size() == kStateHeader + n_heads * pages_for(state[1] - 1);
}

std::unique_ptr<Selector> make_butler_selector(const PolicyChoice& choice,
                                               std::shared_ptr<const ButlerWeights> weights) {
  QUIRE_CHECK(weights->geometry.dim == choice.number("dim"));
  return std::make_unique<SelectButler>(choice, std::move(weights));
}

}  // namespace quire
