#include "policy/index_budget.h"

#include <algorithm>
#include <cmath>

namespace quire {

namespace {

size_t share_of(double share, size_t n) {
  return static_cast<size_t>(std::ceil(share * static_cast<double>(n)));
}

// What is left of a number of rows for coded ones.
size_t beyond(size_t n_rows, size_t n_exact) { return n_rows > n_exact ? n_rows - n_exact : 0; }

}  // namespace

StepBudget step_budget(const IndexBudget& budget, size_t n_exact, size_t n_coded) {
  const size_t n_tokens = n_exact + n_coded;
  StepBudget step;
  if (budget.mass > 0) {
    step.mass = budget.mass;
    step.n_candidates = std::max(share_of(budget.candidates, n_tokens), kLeastShareRows);
    step.n_candidates = std::min(beyond(step.n_candidates, n_exact), n_coded);
    step.n_rows = step.n_candidates;
    step.everything = budget.mass >= 1;
    return step;
  }
  const size_t n_wanted =
      budget.rows > 0 ? budget.rows : std::max(share_of(budget.share, n_tokens), kLeastShareRows);
  step.n_rows = std::min(beyond(n_wanted, n_exact), n_coded);
  step.everything = step.n_rows == n_coded;
  step.n_candidates =
      std::clamp(beyond(share_of(budget.candidates, n_wanted), n_exact), step.n_rows, n_coded);
  return step;
}

}  // namespace quire
