#include "text/merge_table.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <functional>

#include "base/error.h"

namespace quire {
namespace {

// Words up to this many symbols go the quadratic way, which needs no heap and no memory.
constexpr size_t kShortSymbols = 32;

uint64_t pair_key(int32_t left, int32_t right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

size_t hash_pair(uint64_t pair) {
  pair *= 0x9e3779b97f4a7c15u;
  return static_cast<size_t>(pair ^ pair >> 32);
}

// A word as a doubly linked list of symbols, and a heap of the pairs that may merge. A pair is known by
// the place of its left symbol; entries that a merge has made stale stay in the heap and are recognised
// by their rank when they come up, since a rank belongs to one pair only.
class LongWord {
 public:
  LongWord(const MergeTable& merges, int32_t* ids, size_t n)
      : merges_(merges), ids_(ids), n_(static_cast<uint32_t>(n)), previous_(n), next_(n), pairs_(n) {
    heap_.reserve(n);
    for (uint32_t i = 0; i < n_; ++i) {
      previous_[i] = i - 1;
      next_[i] = i + 1;
      rank_pair(i);
    }
    std::make_heap(heap_.begin(), heap_.end(), std::greater<>());
  }

  size_t merge_all() {
    while (!heap_.empty()) {
      std::pop_heap(heap_.begin(), heap_.end(), std::greater<>());
      const uint64_t best = heap_.back();
      heap_.pop_back();
      const auto place = static_cast<uint32_t>(best);
      if (pairs_[place].rank == best >> 32) merge_at(place);
    }
    size_t n_left = 0;
    for (uint32_t i = 0; i < n_; i = next_[i]) ids_[n_left++] = ids_[i];  // symbol 0 is never merged away
    return n_left;
  }

 private:
  // Looks up the pair that begins at `i` and appends it to the heap's array; true if there is one.
  bool rank_pair(uint32_t i) {
    pairs_[i] = {MergeTable::kNoRank, 0};
    if (next_[i] < n_) pairs_[i] = merges_.find(ids_[i], ids_[next_[i]]);
    if (pairs_[i].rank == MergeTable::kNoRank) return false;
    heap_.push_back(static_cast<uint64_t>(pairs_[i].rank) << 32 | i);
    return true;
  }

  void push_pair(uint32_t i) {
    if (rank_pair(i)) std::push_heap(heap_.begin(), heap_.end(), std::greater<>());
  }

  void merge_at(uint32_t left) {
    const uint32_t right = next_[left];
    ids_[left] = pairs_[left].id;
    pairs_[right].rank = MergeTable::kNoRank;
    next_[left] = next_[right];
    if (next_[left] < n_) previous_[next_[left]] = left;
    push_pair(left);
    if (left > 0) push_pair(previous_[left]);
  }

  const MergeTable& merges_;
  int32_t* ids_;
  uint32_t n_;
  std::vector<uint32_t> previous_;
  std::vector<uint32_t> next_;            // n_ after the last
  std::vector<MergeTable::Merge> pairs_;  // of the symbol with its next
  std::vector<uint64_t> heap_;            // rank << 32 | place of the left symbol
};

}  // namespace

void MergeTable::reserve(size_t n_merges) {
  entries_.assign(std::bit_ceil(2 * n_merges + 1), Entry{kFree, {kNoRank, 0}});
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

MergeTable::Merge MergeTable::find(int32_t left, int32_t right) const {
  const uint64_t pair = pair_key(left, right);
  const size_t mask = entries_.size() - 1;
  size_t i = hash_pair(pair) & mask;
  for (; entries_[i].pair != kFree; i = (i + 1) & mask) {
    if (entries_[i].pair == pair) return entries_[i].merge;
  }
  return {kNoRank, 0};
}

size_t MergeTable::apply(int32_t* ids, size_t n) const {
  if (n < 2) return n;
  return n <= kShortSymbols ? apply_short(ids, n) : apply_long(ids, n);
}

size_t MergeTable::apply_short(int32_t* ids, size_t n) const {
  std::array<Merge, kShortSymbols> pairs;  // [i]: of symbols i and i + 1
  for (size_t i = 0; i + 1 < n; ++i) pairs[i] = find(ids[i], ids[i + 1]);
  while (n > 1) {
    const auto by_rank = [](const Merge& a, const Merge& b) { return a.rank < b.rank; };
    const auto best = std::min_element(pairs.begin(), pairs.begin() + static_cast<ptrdiff_t>(n - 1), by_rank);
    if (best->rank == kNoRank) break;
    const auto i = static_cast<size_t>(best - pairs.begin());
    ids[i] = best->id;
    std::copy(ids + i + 2, ids + n, ids + i + 1);
    std::copy(pairs.begin() + static_cast<ptrdiff_t>(i + 1), pairs.begin() + static_cast<ptrdiff_t>(n - 1),
              pairs.begin() + static_cast<ptrdiff_t>(i));
    --n;
    if (i + 1 < n) pairs[i] = find(ids[i], ids[i + 1]);
    if (i > 0) pairs[i - 1] = find(ids[i - 1], ids[i]);
  }
  return n;
}

size_t MergeTable::apply_long(int32_t* ids, size_t n) const {
  // The ranks and places of LongWord are 32 bit; Tokenizer refuses longer texts before they get here.
  QUIRE_CHECK(n < 0xffffffffu);
  return LongWord(*this, ids, n).merge_all();
}

}  // namespace quire
