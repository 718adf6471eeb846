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
  // Where pages are promoted (policy/hot_pages.h): probability that each page of the policy's size got in a
  // decode step, summed over query heads and so many layers; of the coded rows that were not read: 0.
  std::vector<float> page_scores;
  size_t scored_layers = 0;
  // The same of each token that is coded after a prompt, summed over so many layers: the mean over the last
  // queries that see it.
  std::vector<float> token_scores;
  size_t observed_layers = 0;
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

// Decides after a step what moves (store/row_copies.h). The recipe `full` never moves anything.
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
