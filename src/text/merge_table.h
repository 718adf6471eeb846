// The merges of a BPE vocabulary that lists them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "text/pair_merging.h"

namespace quire {

// (left id, right id) -> (rank, merged id), in an open-addressing table.
class MergeTable {
 public:
  // Room for n_merges without growing.
  void reserve(size_t n_merges);

  // False, and nothing changed, if the pair is already there.
  bool insert(int32_t left, int32_t right, Merge merge);

  // Of rank Merge::kNoRank if the two do not merge.
  Merge find(int32_t left, int32_t right) const;

  // Merges the symbols in place (text/pair_merging.h). Returns how many are left at the front.
  size_t apply(int32_t* ids, size_t n) const;

 private:
  struct Entry {
    uint64_t pair;  // left << 32 | right; kFree if unused
    Merge merge;
  };
  static constexpr uint64_t kFree = ~uint64_t{0};

  std::vector<Entry> entries_;  // power of two, at most half full
};

}  // namespace quire
