// Where a cache's tokens are, as one value to be recorded after a step.
#pragma once

#include <cstdint>

#include "cache/cache.h"

namespace quire {

// Tokens now, and events since the cache was empty.
struct Residency {
  uint64_t total_tokens = 0;
  uint64_t hot_tokens = 0;   // in exact rows
  uint64_t cold_tokens = 0;  // in coded rows
  uint64_t sticky_tokens = 0;
  uint64_t promotions = 0;
  uint64_t page_ins = 0;
  uint64_t page_outs = 0;
};

// Of the public interface alone: sinks before coded pages count as cold, and dropped rows as hot. What cannot
// be cropped is coded only in recipes that code.
inline Residency residency_of(const Cache& cache) {
  const uint64_t n = cache.n_tokens();
  const uint64_t n_cold = cache.recipe().seals() ? cache.coded_tokens() : 0;
  return {.total_tokens = n, .hot_tokens = n - n_cold, .cold_tokens = n_cold};
}

}  // namespace quire
