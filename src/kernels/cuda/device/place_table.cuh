// Places of fetched records (resident_set.h), found and taken by many threads at a time.
#pragma once

#include "kernels/cuda/resident_set.h"

namespace quire::cuda {

// A set as it is now: other blocks change it.
struct SetWords {
  uint32_t words[kWays];

  __device__ explicit SetWords(const uint32_t* set) {
#pragma unroll
    for (int i = 0; i < kWays / 4; ++i) {
      const uint4 four = __ldcg(reinterpret_cast<const uint4*>(set) + i);
      words[4 * i] = four.x, words[4 * i + 1] = four.y, words[4 * i + 2] = four.z, words[4 * i + 3] = four.w;
    }
  }
};

// Records of one pair.
struct ResidentSet {
  uint32_t* words;
  uint32_t n_sets;
  uint32_t step;

  __device__ uint32_t* set_of(uint32_t row, uint32_t& first) const {
    first = set_of_row(row, n_sets) * kWays;
    return words + first;
  }
  // The place of a row that is there, wanted from now on; else kOutside.
  __device__ uint32_t find(uint32_t row) const {
    uint32_t first;
    uint32_t* set = set_of(row, first);
    const SetWords now(set);
    const Way way = find_row(now.words, row);
    if (way.index < 0) return kOutside;
    const uint32_t wanted = place_word(row, step);
    if (way.word != wanted && atomicCAS(set + way.index, way.word, wanted) != way.word) return kOutside;
    return first + (uint32_t)way.index;
  }
  // A place for a row that is not there; kOutside where all of its set are wanted. Ends: a word that has
  // changed meanwhile is wanted.
  __device__ uint32_t take(uint32_t row) const {
    uint32_t first;
    uint32_t* set = set_of(row, first);
#pragma unroll 1
    for (;;) {
      const SetWords now(set);
      const Way way = place_to_take(now.words, step);
      if (way.index < 0) return kOutside;
      if (atomicCAS(set + way.index, way.word, place_word(row, step)) == way.word)
        return first + (uint32_t)way.index;
    }
  }
};

}  // namespace quire::cuda
