#include "kernels/cuda/resident_set.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <vector>

#include "property/random.h"

namespace quire::test {
namespace {

using cuda::kWays;

// A set as rows with the step in which each was last wanted.
struct PlainSet {
  std::map<uint32_t, uint32_t> wanted;  // row -> step

  // The row that has to go for another, or kNoRow: none may or need to.
  uint32_t row_to_go(uint32_t step) const {
    if (wanted.size() < kWays) return cuda::kNoRow;
    uint32_t row = cuda::kNoRow;
    uint32_t oldest = step;
    for (const auto& [candidate, when] : wanted) {
      if (when < oldest) {
        oldest = when;
        row = candidate;
      }
    }
    return row;
  }
};

// Steps that want rows at random, with favourites: what is found, what goes and what finds no place is as in
// the plain sets; of rows wanted the longest ago any may go.
TEST(ResidentSetTest, IsAPlainLeastRecentlyWantedCache) {
  Random random(3);
  constexpr uint32_t kSets = 5;
  std::vector<uint32_t> words(kSets * kWays, cuda::kEmptyWord);
  std::array<PlainSet, kSets> plain;
  int n_found = 0, n_taken = 0, n_refused = 0;
  for (uint32_t step = 1; step <= 600; ++step) {
    std::set<uint32_t> rows;
    const auto n_wanted = random.below(120);
    while (rows.size() < n_wanted)
      rows.insert(static_cast<uint32_t>(random.below(random.below(2) == 0 ? 60 : 4000)));
    for (const uint32_t row : rows) {
      const uint32_t at = cuda::set_of_row(row, kSets);
      ASSERT_LT(at, kSets);
      uint32_t* set = words.data() + at * kWays;
      PlainSet& model = plain[at];
      const cuda::Way found = cuda::find_row(set, row);
      ASSERT_EQ(found.index >= 0, model.wanted.contains(row));
      if (found.index >= 0) {
        ASSERT_EQ(set[found.index], found.word);
        set[found.index] = cuda::place_word(row, step);
        model.wanted[row] = step;
        ++n_found;
        continue;
      }
      const bool is_full = model.wanted.size() == kWays;
      const uint32_t goes = model.row_to_go(step);
      const cuda::Way taken = cuda::place_to_take(set, step);
      ASSERT_EQ(taken.index < 0, is_full && goes == cuda::kNoRow);
      if (taken.index < 0) {
        ++n_refused;
        continue;
      }
      const uint32_t gone = taken.word >> 8;
      ASSERT_EQ(gone == cuda::kNoRow, !is_full);
      if (is_full) {
        ASSERT_EQ(model.wanted.at(gone), model.wanted.at(goes)) << "an older one was there";
        model.wanted.erase(gone);
      }
      set[taken.index] = cuda::place_word(row, step);
      model.wanted[row] = step;
      ++n_taken;
    }
    // Ages are told apart up to 255 steps.
    for (PlainSet& model : plain) {
      for (auto& [row, when] : model.wanted) ASSERT_LT(step - when, 256u) << "the test wants rows too rarely";
    }
  }
  EXPECT_GT(n_found, 1000);
  EXPECT_GT(n_taken, 1000);
  EXPECT_GT(n_refused, 100);
}

TEST(ResidentSetTest, NeighboursLieApartAndSetsAreEvenlyFull) {
  constexpr uint32_t kSets = 1000;
  std::vector<int> n(kSets, 0);
  for (uint32_t row = 0; row < 262144; ++row) ++n[cuda::set_of_row(row, kSets)];
  for (const int each : n) {
    EXPECT_GT(each, 200);
    EXPECT_LT(each, 330);
  }
  EXPECT_NE(cuda::set_of_row(100, kSets), cuda::set_of_row(101, kSets));
  EXPECT_EQ(cuda::set_of_row(cuda::kNoRow - 1, 1), 0u);
}

// With five places for four rows, as plan_offload() has it at most, no set has more rows than places.
TEST(ResidentSetTest, EveryRowOfATextHasAPlace) {
  for (uint32_t rows = 64; rows <= 1 << 20; rows = rows * 5 / 4 / 64 * 64 + 64) {
    const uint32_t n_sets = (rows * 5 / 4 + kWays - 1) / kWays;
    std::vector<int> n(n_sets, 0);
    for (uint32_t row = 0; row < rows; ++row) ++n[cuda::set_of_row(row, n_sets)];
    EXPECT_LE(*std::max_element(n.begin(), n.end()), kWays) << rows;
  }
}

// A place that was last wanted exactly 256 steps ago counts as wanted now: it is found, and not taken.
TEST(ResidentSetTest, StepsWrapAround) {
  std::array<uint32_t, kWays> set;
  for (uint32_t i = 0; i < kWays; ++i) set[i] = cuda::place_word(i, 7);
  EXPECT_EQ(cuda::place_to_take(set.data(), 7 + 256).index, -1);
  EXPECT_EQ(cuda::find_row(set.data(), 3).index, 3);
  EXPECT_GE(cuda::place_to_take(set.data(), 8 + 256).index, 0);
  set[9] = cuda::place_word(9, 250);
  EXPECT_NE(cuda::place_to_take(set.data(), 256 + 6).index, 9);  // 12 steps ago, the others 255
}

}  // namespace
}  // namespace quire::test
