// What a file says of a sequence whose rows a trained predictor names, u64: the hash of the predictor, whose
// projections of keys lie in the pages, and then the selector's state (policy/select_butler.h). With it the
// sequence goes on as if it had never been in a file, in the middle of an interval too.
#pragma once

#include <cstdint>
#include <vector>

#include "base/section_file.h"
#include "cache/cache.h"

namespace quire {

// Of the geometry and all weights.
uint64_t butler_hash(const ButlerWeights& weights);

std::vector<uint64_t> predicted_values(const Cache& cache);

struct SavedPrediction {
  // Throws Error for a section that does not fit the model or the rows.
  static SavedPrediction read(const SectionFile& file, const Geometry& geometry, size_t n_tokens);

  uint64_t hash = 0;
  std::vector<uint64_t> state;
};

}  // namespace quire
