// How many rows a step reads through an index, and how many it considers.
#pragma once

#include <cstddef>

#include "policy/row_budget.h"

namespace quire {

// What a recipe says: a budget by share of the tokens, by number of rows, or by attention mass.
struct IndexBudget {
  double share = 0.075;     // of all tokens, exact ones included; 0: not by share
  size_t rows = 0;          // so many, exact ones included; 0: not by number
  double mass = 0;          // as many as hold this share of the attention mass; 0: not by mass
  double candidates = 1.5;  // times the rows read: those whose codes are scored; by mass: share of all tokens
  size_t dense_layers = 0;  // so many first layers read everything
  bool mean_query = false;  // candidates of the group's mean query; else the best of any head of the group

  bool operator==(const IndexBudget&) const = default;
};

// Share of the tokens that are candidates of a budget by mass, unless said otherwise.
constexpr double kMassCandidates = 0.35;

// The same for a step: numbers of coded rows of one KV head.
struct StepBudget {
  bool everything = false;  // the budget covers all rows
  size_t n_candidates = 0;  // rows whose codes are scored
  size_t n_rows = 0;        // of which so many are read
  double mass = 0;          // or as many as hold this share of the mass, if above 0
};

// n_coded rows can be chosen from; n_exact others are read in any case.
StepBudget step_budget(const IndexBudget& budget, size_t n_exact, size_t n_coded);

}  // namespace quire
