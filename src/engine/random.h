// A small generator of random numbers that gives the same numbers for a seed on every machine and library.
#pragma once

#include <array>
#include <cstdint>

namespace quire {

// xoshiro256** (Blackman and Vigna, "Scrambled linear pseudorandom number generators", 2021), its state
// filled by splitmix64. The distributions of <random> differ between libraries, so none is used.
class Random {
 public:
  explicit Random(uint64_t seed);

  uint64_t next();
  // Evenly in [0, 1), with all 53 bits of a double.
  double uniform() { return static_cast<double>(next() >> 11) * 0x1.0p-53; }

 private:
  std::array<uint64_t, 4> state_;
};

}  // namespace quire
