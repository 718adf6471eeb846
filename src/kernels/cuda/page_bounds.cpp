#include "kernels/cuda/page_bounds.h"

#include <algorithm>

#include "kernels/cuda/device/page_choice.h"

namespace quire::cuda {

int listed_rows(const PageBudget& budget, int page_tokens, int n_tokens) {
  const PageChoice choice = page_choice(budget, page_tokens, n_tokens);
  if (!choice.selects) return n_tokens;
  return (choice.n_short - 1) * page_tokens + n_tokens - choice.last * page_tokens;
}

int listed_units(const PageBudget& budget, int page_tokens, int most_tokens) {
  int most = 0;
  for (int n = 1; n <= most_tokens; ++n) most = std::max(most, listed_rows(budget, page_tokens, n));
  return (most + kUnitRows - 1) / kUnitRows;
}

}  // namespace quire::cuda
