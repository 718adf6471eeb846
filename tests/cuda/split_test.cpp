#include "kernels/cuda/split.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace quire::cuda {
namespace {

TEST(Split, TilesHoldAllTokens) {
  EXPECT_EQ(tiles_of(0, 16), 0);
  EXPECT_EQ(tiles_of(1, 16), 1);
  EXPECT_EQ(tiles_of(16, 16), 1);
  EXPECT_EQ(tiles_of(17, 16), 2);
  EXPECT_EQ(tiles_of(131071, 64), 2048);
}

TEST(Split, BlocksShareAllTilesEvenly) {
  for (const int64_t n_tiles : {1, 2, 7, 131, 132, 133, 264, 1000, 16384, 16777216}) {
    const int n_blocks = busy_blocks(n_tiles, 132);
    int64_t next = 0;
    for (int block = 0; block < n_blocks; ++block) {
      const TileRange range = tiles_of_block(block, n_tiles, n_blocks);
      EXPECT_EQ(range.begin, next);
      EXPECT_GE(range.end - range.begin, n_tiles / n_blocks);
      EXPECT_LE(range.end - range.begin, n_tiles / n_blocks + 1);
      EXPECT_EQ(block_of_tile(range.begin, n_tiles, n_blocks), block);
      EXPECT_EQ(block_of_tile(range.end - 1, n_tiles, n_blocks), block);
      next = range.end;
    }
    EXPECT_EQ(next, n_tiles);
  }
}

TEST(Split, EqualPartsHoldAllTiles) {
  for (const int unit : {1, 2}) {
    for (const int n_tiles : {0, 1, 2, 7, 131, 132, 133, 264, 1000, 16384, 16777216}) {
      const EqualParts parts = equal_parts(n_tiles, 132, unit);
      EXPECT_EQ(parts.length % unit, 0);
      EXPECT_LE(parts.n, 132);
      EXPECT_GE(int64_t{parts.length} * parts.n, n_tiles);
      EXPECT_LT(int64_t{parts.length} * (parts.n - 1), std::max(n_tiles, 1));
      EXPECT_LT(parts.length, n_tiles / 132 + 1 + unit);
    }
  }
}

// Every block's states of the pairs that its range touches lie apart, for pairs of any lengths.
TEST(Split, StatesLieApart) {
  const int lengths[] = {3, 0, 1, 100, 7, 0, 0, 2, 64};
  constexpr int n_pairs = 9;
  int64_t n_tiles = 0;
  for (const int length : lengths) n_tiles += length;
  for (const int wanted : {1, 2, 5, 132, 1000}) {
    const int n_blocks = busy_blocks(n_tiles, wanted);
    std::set<int> seen;
    int64_t first = 0;
    for (int pair = 0; pair < n_pairs; first += lengths[pair++]) {
      if (lengths[pair] == 0) continue;
      const int last = block_of_tile(first + lengths[pair] - 1, n_tiles, n_blocks);
      for (int block = block_of_tile(first, n_tiles, n_blocks); block <= last; ++block) {
        EXPECT_TRUE(seen.insert(state_index(block, pair)).second);
        EXPECT_LT(state_index(block, pair), state_count(n_blocks, n_pairs));
      }
    }
  }
}

}  // namespace
}  // namespace quire::cuda
