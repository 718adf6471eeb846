#include "cache/select_oracle.h"

#include <vector>

#include "cache/row_scores.h"
#include "policy/highest.h"

namespace quire {

namespace {

class SelectOracle : public Selector {
 public:
  explicit SelectOracle(const PolicyChoice& choice)
      : budget_(choice.budget), dense_layers_(choice.number("dense")) {}

  std::unique_ptr<Selector> copy() const override { return std::make_unique<SelectOracle>(*this); }

  bool selects(size_t layer, size_t n_tokens) const override {
    return layer >= dense_layers_ && budget_.of(n_tokens) < n_tokens;
  }

  void select(const HeadStep& step, Selection& selection) override {
    const LayerView& view = *step.view;
    const QueryRows queries{step.q, 1, step.group, view.n_tokens - 1, step.framed, step.bias};
    AttendScratch scratch;
    std::vector<float> scores;
    score_all_rows(view, step.kv_head, queries, step.frames, scratch, scores);
    std::vector<float> best;
    const size_t n_pages = scores.size() / step.group / kTokensPerPage;
    best_log_probabilities(scores.data(), n_pages, step.group, best);
    prefer_kept(view, step.kv_head, best);
    mark_highest(best, budget_.of(view.n_tokens), step.kv_head, scores, selection);
  }

  bool reads_all_keys() const override { return true; }

 private:
  RowBudget budget_;
  size_t dense_layers_;
};

}  // namespace

std::unique_ptr<Selector> make_oracle_selector(const PolicyChoice& choice) {
  return std::make_unique<SelectOracle>(choice);
}

}  // namespace quire
