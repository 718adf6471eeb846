// How many coded rows of a KV head a sparse step considers and reads: the numbers of policy/index_budget.h,
// worked out where the lengths are, on the device.
#pragma once

#include <stdint.h>

#include "base/half.h"

namespace quire::cuda {

// Fewest rows that a budget by share comes to.
constexpr int kLeastRows = 256;

struct SparseBudget {
  double share = 0.075;     // of all tokens, exact ones included
  int rows = 0;             // above 0: so many instead, exact ones included
  double mass = 0;          // above 0: as many as hold this share of the attention mass, for each query head
  double candidates = 1.5;  // times the rows read; by mass: share of all tokens
};

QUIRE_INLINE bool by_mass(const SparseBudget& budget) { return budget.mass > 0 && budget.mass < 1; }

struct SparseCounts {
  int n_candidates;
  int n_rows;
};

// ceil(share * n).
QUIRE_INLINE int rows_of_share(double share, int n) {
  const double rows = share * (double)n;
  const int whole = (int)rows;
  return whole + ((double)whole < rows ? 1 : 0);
}

QUIRE_INLINE int at_most(int n, int most) { return n < most ? n : most; }
QUIRE_INLINE int at_least(int n, int least) { return n > least ? n : least; }

// n_coded rows can be chosen from; n_exact others are read in any case.
QUIRE_INLINE SparseCounts sparse_counts(const SparseBudget& budget, int n_exact, int n_coded) {
  const int n_tokens = n_exact + n_coded;
  if (budget.mass > 0) {
    const int n_wanted = at_least(rows_of_share(budget.candidates, n_tokens), kLeastRows);
    const int n = budget.mass >= 1 ? n_coded : at_most(at_least(n_wanted - n_exact, 0), n_coded);
    return {n, n};
  }
  const int n_wanted =
      budget.rows > 0 ? budget.rows : at_least(rows_of_share(budget.share, n_tokens), kLeastRows);
  const int n_rows = at_most(at_least(n_wanted - n_exact, 0), n_coded);
  const int n_considered = rows_of_share(budget.candidates, n_wanted) - n_exact;
  return {at_most(at_least(n_considered, n_rows), n_coded), n_rows};
}

}  // namespace quire::cuda
