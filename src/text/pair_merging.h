// The merging of BPE: again and again the best ranked pair of neighbours, the leftmost of equals, becomes one
// symbol, until no pair merges. What a symbol is and which pairs merge is the caller's.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "base/error.h"

namespace quire {

struct Merge {
  static constexpr uint32_t kNoRank = 0xffffffffu;
  uint32_t rank;  // kNoRank: these two do not merge
  int32_t id;     // of the token that they make
};

namespace detail {

// Words up to this many symbols go the quadratic way, which needs no heap and no memory.
constexpr size_t kShortSymbols = 32;

template <typename Symbol, typename PairOf, typename Join>
size_t merge_short(Symbol* symbols, size_t n, const PairOf& pair_of, const Join& join) {
  std::array<Merge, kShortSymbols> pairs;  // [i]: of symbols i and i + 1
  for (size_t i = 0; i + 1 < n; ++i) pairs[i] = pair_of(symbols[i], symbols[i + 1]);
  while (n > 1) {
    const auto by_rank = [](const Merge& a, const Merge& b) { return a.rank < b.rank; };
    const auto best = std::min_element(pairs.begin(), pairs.begin() + static_cast<ptrdiff_t>(n - 1), by_rank);
    if (best->rank == Merge::kNoRank) break;
    const auto i = static_cast<size_t>(best - pairs.begin());
    join(symbols[i], symbols[i + 1], *best);
    std::copy(symbols + i + 2, symbols + n, symbols + i + 1);
    std::copy(pairs.begin() + static_cast<ptrdiff_t>(i + 1), pairs.begin() + static_cast<ptrdiff_t>(n - 1),
              pairs.begin() + static_cast<ptrdiff_t>(i));
    --n;
    if (i + 1 < n) pairs[i] = pair_of(symbols[i], symbols[i + 1]);
    if (i > 0) pairs[i - 1] = pair_of(symbols[i - 1], symbols[i]);
  }
  return n;
}

// A word as a doubly linked list of symbols, and a heap of the pairs that may merge. A pair is known by
// the place of its left symbol; entries that a merge has made stale stay in the heap and are recognised
// by their rank when they come up: if the pair that is there now has it, it is as good as the one that was.
template <typename Symbol, typename PairOf, typename Join>
class LongWord {
 public:
  LongWord(Symbol* symbols, size_t n, const PairOf& pair_of, const Join& join)
      : symbols_(symbols),
        n_(static_cast<uint32_t>(n)),
        pair_of_(pair_of),
        join_(join),
        previous_(n),
        next_(n),
        pairs_(n) {
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
    for (uint32_t i = 0; i < n_; i = next_[i])
      symbols_[n_left++] = symbols_[i];  // symbol 0 is never merged away
    return n_left;
  }

 private:
  // Looks up the pair that begins at `i` and appends it to the heap's array; true if there is one.
  bool rank_pair(uint32_t i) {
    pairs_[i] = {Merge::kNoRank, 0};
    if (next_[i] < n_) pairs_[i] = pair_of_(symbols_[i], symbols_[next_[i]]);
    if (pairs_[i].rank == Merge::kNoRank) return false;
    heap_.push_back(static_cast<uint64_t>(pairs_[i].rank) << 32 | i);
    return true;
  }

  void push_pair(uint32_t i) {
    if (rank_pair(i)) std::push_heap(heap_.begin(), heap_.end(), std::greater<>());
  }

  void merge_at(uint32_t left) {
    const uint32_t right = next_[left];
    join_(symbols_[left], symbols_[right], pairs_[left]);
    pairs_[right].rank = Merge::kNoRank;
    next_[left] = next_[right];
    if (next_[left] < n_) previous_[next_[left]] = left;
    push_pair(left);
    if (left > 0) push_pair(previous_[left]);
  }

  Symbol* symbols_;
  uint32_t n_;
  const PairOf& pair_of_;
  const Join& join_;
  std::vector<uint32_t> previous_;
  std::vector<uint32_t> next_;  // n_ after the last
  std::vector<Merge> pairs_;    // of the symbol with its next
  std::vector<uint64_t> heap_;  // rank << 32 | place of the left symbol
};

}  // namespace detail

// Merges the n symbols in place and returns how many are left at the front. pair_of(left, right) gives the
// Merge of two neighbours, join(left, right, merge) makes `left` the merged symbol. Quadratic for short
// words, where it is fastest, O(n log n) for long ones.
template <typename Symbol, typename PairOf, typename Join>
size_t merge_pairs(Symbol* symbols, size_t n, const PairOf& pair_of, const Join& join) {
  if (n < 2) return n;
  if (n <= detail::kShortSymbols) return detail::merge_short(symbols, n, pair_of, join);
  // Ranks and places are 32 bit; Tokenizer refuses longer texts before they get here.
  QUIRE_CHECK(n < 0xffffffffu);
  return detail::LongWord<Symbol, PairOf, Join>(symbols, n, pair_of, join).merge_all();
}

}  // namespace quire
