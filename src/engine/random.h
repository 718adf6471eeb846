// A small generator of random numbers that gives the same numbers for a seed on every machine and library.
#pragma once

#include <array>
#include <cstdint>

#include "engine/random_state.h"

namespace quire {

// The distributions of <random> differ between libraries, so none is used.
class Random {
 public:
  explicit Random(uint64_t seed) { seed_random(seed, state_.data()); }

  uint64_t next() { return next_random(state_.data()); }
  // Evenly in [0, 1).
  double uniform() { return uniform_of(next()); }

 private:
  std::array<uint64_t, 4> state_;
};

}  // namespace quire
