// How many short pages a step reads; the same on host and device.
#pragma once

#include <math.h>

#include "base/half.h"
#include "kernels/cuda/page_bounds.h"

namespace quire::cuda {

struct PageChoice {
  int n_short;   // pages read, that of the newest token among them
  int last;      // that page; those before have bounds
  bool selects;  // not all rows are read
};

// policy/row_budget.h, policy/select_quest.cpp.
QUIRE_INLINE PageChoice page_choice(const PageBudget& budget, int page_tokens, int n_tokens) {
  constexpr int kLeastShareRows = 256;
  constexpr int kLeastShortPages = 3;
  int n_budget = budget.rows;
  if (budget.rows == 0) {
    n_budget = (int)ceil(budget.share * (double)n_tokens);
    n_budget = n_budget < kLeastShareRows ? kLeastShareRows : n_budget;
  }
  n_budget = n_budget < n_tokens ? n_budget : n_tokens;
  const int n_short = n_budget / page_tokens;
  PageChoice choice = {n_short < kLeastShortPages ? kLeastShortPages : n_short,
                       n_tokens > 0 ? (n_tokens - 1) / page_tokens : 0, false};
  choice.selects = n_budget < n_tokens && choice.n_short <= choice.last;
  return choice;
}

}  // namespace quire::cuda
