// Policies: what a step reads, and what moves after it. Called once a step, never once a row.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "store/selection.h"
#include "store/store.h"

namespace quire {

// What a step saw, handed to the policies after it.
struct StepStats {
  uint64_t n_tokens = 0;    // in the cache after the step
  uint64_t rows_read = 0;   // key rows attended to, summed over layers and KV heads
  uint64_t bytes_read = 0;  // bytes of the cache that these rows and any index took
  // Where a selection was measured (Cache::measure_mass): the share of the attention mass on the rows read,
  // summed over so many layers and query heads.
  double mass_sum = 0;
  uint64_t mass_count = 0;
};

// Chooses the tokens that one layer reads in a decode step.
class Selector {
 public:
  virtual ~Selector() = default;
  // q [n_heads][head_dim]: the rotated query of the step's token.
  virtual Selection select(size_t layer, const LayerView& view, const float* q) = 0;
};

// Reads everything.
class SelectAll : public Selector {
 public:
  Selection select(size_t, const LayerView&, const float*) override { return Selection::all(); }
};

// A change of where or how a range of tokens is kept, applied by the store after the step.
struct Move {
  size_t layer;
  size_t page;
};

// Decides after a step what moves. The recipe `full` never moves anything.
class Placement {
 public:
  virtual ~Placement() = default;
  virtual std::vector<Move> plan(const Store& store, const StepStats& stats) = 0;
};

class StayInPlace : public Placement {
 public:
  std::vector<Move> plan(const Store&, const StepStats&) override { return {}; }
};

}  // namespace quire
