// Both ways of merging give what the definition gives.
#include "text/merge_table.h"

#include <gtest/gtest.h>

#include <random>

namespace quire {
namespace {

// The definition, word for word: the best pair, the leftmost of equals, again and again.
std::vector<int32_t> merge_plainly(const MergeTable& table, std::vector<int32_t> ids) {
  for (;;) {
    size_t best_at = 0;
    Merge best{Merge::kNoRank, 0};
    for (size_t i = 0; i + 1 < ids.size(); ++i) {
      const Merge merge = table.find(ids[i], ids[i + 1]);
      if (merge.rank < best.rank) {
        best = merge;
        best_at = i;
      }
    }
    if (best.rank == Merge::kNoRank) return ids;
    ids[best_at] = best.id;
    ids.erase(ids.begin() + static_cast<ptrdiff_t>(best_at) + 1);
  }
}

TEST(MergeTable, FindsWhatWasInsertedAndNothingElse) {
  MergeTable table;
  table.reserve(2);
  EXPECT_TRUE(table.insert(1, 2, {7, 3}));
  EXPECT_FALSE(table.insert(1, 2, {8, 4}));
  EXPECT_EQ(table.find(1, 2).rank, 7u);
  EXPECT_EQ(table.find(1, 2).id, 3);
  EXPECT_EQ(table.find(2, 1).rank, Merge::kNoRank);
}

TEST(MergeTable, ShortAndLongWordsEqualTheDefinition) {
  std::mt19937 rng(5);
  for (int round = 0; round < 300; ++round) {
    MergeTable table;
    table.reserve(60);
    int32_t n_ids = 3;
    for (uint32_t rank = 0; rank < 60; ++rank) {
      const auto any = [&] { return static_cast<int32_t>(rng() % static_cast<uint32_t>(n_ids)); };
      if (table.insert(any(), any(), {rank, n_ids})) ++n_ids;
    }
    std::vector<int32_t> ids(rng() % 120);
    for (int32_t& id : ids) id = static_cast<int32_t>(rng() % 3);
    const std::vector<int32_t> expected = merge_plainly(table, ids);
    ids.resize(table.apply(ids.data(), ids.size()));
    ASSERT_EQ(ids, expected) << "round " << round;
  }
}

}  // namespace
}  // namespace quire
