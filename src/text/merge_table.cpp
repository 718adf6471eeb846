#include "text/merge_table.h"

#include <bit>

namespace quire {
namespace {

uint64_t pair_key(int32_t left, int32_t right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

size_t hash_pair(uint64_t pair) {
  pair *= 0x9e3779b97f4a7c15u;
  return static_cast<size_t>(pair ^ pair >> 32);
}

}  // namespace

void MergeTable::reserve(size_t n_merges) {
  entries_.assign(std::bit_ceil(2 * n_merges + 1), Entry{kFree, {Merge::kNoRank, 0}});
}

bool MergeTable::insert(int32_t left, int32_t right, Merge merge) {
  const uint64_t pair = pair_key(left, right);
  const size_t mask = entries_.size() - 1;
  size_t i = hash_pair(pair) & mask;
  for (; entries_[i].pair != kFree; i = (i + 1) & mask) {
    if (entries_[i].pair == pair) return false;
  }
  entries_[i] = {pair, merge};
  return true;
}

Merge MergeTable::find(int32_t left, int32_t right) const {
  const uint64_t pair = pair_key(left, right);
  const size_t mask = entries_.size() - 1;
  size_t i = hash_pair(pair) & mask;
  for (; entries_[i].pair != kFree; i = (i + 1) & mask) {
    if (entries_[i].pair == pair) return entries_[i].merge;
  }
  return {Merge::kNoRank, 0};
}

size_t MergeTable::apply(int32_t* ids, size_t n) const {
  return merge_pairs(
      ids, n, [this](int32_t left, int32_t right) { return find(left, right); },
      [](int32_t& left, int32_t, Merge merge) { left = merge.id; });
}

}  // namespace quire
