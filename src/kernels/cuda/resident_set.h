// Which records of rows lie on the device as well as outside: the bookkeeping of a set-associative cache, the
// same on host and device.
//
// A pair (sequence, KV head) of a layer has n_sets sets of kWays places. A row may lie in the places of its
// set alone. The word of a place is the row in its upper 24 bits and, in the lower 8, the step in which the
// row was last wanted, modulo 256. A place wanted in this step is never given to another row in it; of the
// others that of the greatest age goes, the one wanted the longest ago up to 255 steps: older ones begin
// again at age 0, look newer than they are, and cannot be had for the step at 0.
#pragma once

#include <stdint.h>

#include "base/half.h"

namespace quire::cuda {

constexpr int kWays = 16;
constexpr uint32_t kNoRow = 0xffffff;  // rows are less
constexpr uint32_t kEmptyWord = kNoRow << 8;
constexpr uint32_t kOutside = 0xffffffff;  // not a place: the row is read where it lies

struct Way {
  int index;      // -1: none
  uint32_t word;  // as it is there
};

QUIRE_INLINE uint32_t place_word(uint32_t row, uint32_t step) { return row << 8 | (step & 0xff); }

// Neighbours go to sets that lie apart.
QUIRE_INLINE uint32_t set_of_row(uint32_t row, uint32_t n_sets) {
  return (uint32_t)((uint64_t)(row * 0x9e3779b1u) * n_sets >> 32);
}

// words [kWays] of a set.
QUIRE_INLINE Way find_row(const uint32_t* words, uint32_t row) {
  Way way = {-1, 0};
  for (int i = 0; i < kWays; ++i) {
    if (words[i] >> 8 == row) way = {i, words[i]};
  }
  return way;
}

// The place that a row takes which is not there: an empty one, or that of the greatest age (modulo 256).
QUIRE_INLINE Way place_to_take(const uint32_t* words, uint32_t step) {
  Way way = {-1, 0};
  uint32_t oldest = 0;
  for (int i = 0; i < kWays; ++i) {
    const uint32_t age = words[i] >> 8 == kNoRow ? 256 : (step - words[i]) & 0xff;
    if (age > oldest) {
      oldest = age;
      way = {i, words[i]};
    }
  }
  return way;
}

}  // namespace quire::cuda
