// The merges of a BPE vocabulary, and the merging itself.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace quire {

// (left id, right id) -> (rank, merged id), in an open-addressing table.
class MergeTable {
 public:
  static constexpr uint32_t kNoRank = 0xffffffffu;

  struct Merge {
    uint32_t rank;  // kNoRank: these two do not merge
    int32_t id;
  };

  // Room for n_merges without growing.
  void reserve(size_t n_merges);

  // False, and nothing changed, if the pair is already there.
  bool insert(int32_t left, int32_t right, Merge merge);

  Merge find(int32_t left, int32_t right) const;

  // Merges the symbols in place: always the best ranked pair, the leftmost of equals, until no pair
  // merges. Returns how many are left at the front. Quadratic for short words, where it is fastest,
  // O(n log n) for long ones.
  size_t apply(int32_t* ids, size_t n) const;

 private:
  struct Entry {
    uint64_t pair;  // left << 32 | right; kFree if unused
    Merge merge;
  };
  static constexpr uint64_t kFree = ~uint64_t{0};

  size_t apply_short(int32_t* ids, size_t n) const;
  size_t apply_long(int32_t* ids, size_t n) const;

  std::vector<Entry> entries_;  // power of two, at most half full
};

}  // namespace quire
