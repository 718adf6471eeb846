// The generator behind engine/random.h as it also runs on a GPU: xoshiro256** (Blackman and Vigna, "Scrambled
// linear pseudorandom number generators", 2021), its state of four words filled by splitmix64.
#pragma once

#include <stdint.h>

#include "base/half.h"

namespace quire {

QUIRE_INLINE void seed_random(uint64_t seed, uint64_t* state) {
  for (int i = 0; i < 4; ++i) {
    seed += 0x9e3779b97f4a7c15;
    uint64_t z = seed;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    state[i] = z ^ (z >> 31);
  }
}

QUIRE_INLINE uint64_t rotated_left(uint64_t x, int n) { return x << n | x >> (64 - n); }

QUIRE_INLINE uint64_t next_random(uint64_t* state) {
  const uint64_t result = rotated_left(state[1] * 5, 7) * 9;
  const uint64_t shifted = state[1] << 17;
  state[2] ^= state[0];
  state[3] ^= state[1];
  state[1] ^= state[2];
  state[0] ^= state[3];
  state[2] ^= shifted;
  state[3] = rotated_left(state[3], 45);
  return result;
}

// Evenly in [0, 1), with all 53 bits of a double.
QUIRE_INLINE double uniform_of(uint64_t number) { return (double)(number >> 11) * 0x1.0p-53; }

}  // namespace quire
