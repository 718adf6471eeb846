#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <random>
#include <set>

#include "base/error.h"
#include "tier/piece_cache.h"
#include "tier/piece_layout.h"

namespace quire {
namespace {

using Cell = PieceCache::Cell;

TEST(PieceLayout, RowsAndHeadsComeBackAsTheyWere) {
  std::minstd_rand random(1);
  for (const bool by_rows : {false, true}) {
    for (const size_t value_bytes : {size_t{2}, size_t{4}}) {
      const PieceLayout layout{3, 64 * 16 * 2, 64 * 16 * value_bytes, by_rows, 16};
      std::vector<std::byte> rows(layout.head_bytes()), records(layout.page_bytes()),
          back(layout.head_bytes());
      for (std::byte& byte : rows) byte = static_cast<std::byte>(random());
      pack_head(layout, 77, 1, rows.data(), records.data());
      const size_t first = layout.records_per_head();
      for (size_t i = 0; i < layout.records_per_head(); ++i) {
        const std::byte* record = records.data() + (first + i) * layout.record_bytes();
        EXPECT_TRUE(is_intact(layout, 77, first + i, record));
        EXPECT_FALSE(is_intact(layout, 78, first + i, record)) << "of another page";
        EXPECT_FALSE(is_intact(layout, 77, first + i + 1, record)) << "of another place";
        unpack_record(layout, record, i, back.data());
      }
      EXPECT_EQ(std::memcmp(rows.data(), back.data(), rows.size()), 0) << by_rows;
      records[first * layout.record_bytes() + 5] ^= std::byte{1};
      EXPECT_FALSE(is_intact(layout, 77, first, records.data() + first * layout.record_bytes()));
    }
  }
}

// Against a map: whatever was put in is found until it had to leave, and what is pinned never does.
TEST(PieceCache, KeepsWhatIsPinnedAndFindsWhatIsThere) {
  MemoryAccount account(2 << 20);
  PieceCache cache(60'000, 0, account);
  std::minstd_rand random(5);
  std::map<uint64_t, std::byte> pinned;
  for (int i = 0; i < 20'000; ++i) {
    const uint64_t key = 1 + random() % 60;
    if (random() % 50 == 0) cache.begin_round();
    Cell cell = cache.find(key);
    if (cell == PieceCache::kNone) {
      ASSERT_EQ(pinned.count(key), 0u);
      cell = random() % 2 == 0 ? cache.take(key) : cache.take_ahead(key);
      if (cell == PieceCache::kNone) continue;
      ASSERT_TRUE(cache.is_coming(cell));
      cache.data(cell)[59'999] = static_cast<std::byte>(key);
      cache.arrive(cell);
    }
    ASSERT_EQ(cache.data(cell)[59'999], static_cast<std::byte>(key));
    if (pinned.count(key) != 0) {
      cache.unpin(cell, random() % 2 == 0 ? PieceUse::kSelected : PieceUse::kSwept);
      pinned.erase(key);
    } else if (pinned.size() < 7) {
      cache.pin(cell);
      pinned[key] = static_cast<std::byte>(key);
    }
    for (const auto& [held, byte] : pinned) ASSERT_NE(cache.find(held), PieceCache::kNone);
  }
  EXPECT_LE(account.peak_bytes(), account.limit_bytes());
  EXPECT_GT(cache.n_cells(), 16u) << "it grew into the room there is";
}

TEST(PieceCache, ASweepLargerThanItFindsTheSamePartAgain) {
  MemoryAccount account(1 << 20);
  PieceCache cache(4096, 0, account);
  std::set<uint64_t> hits[3];
  for (auto& sweep : hits) {
    for (uint64_t key = 1; key <= 400; ++key) {
      Cell cell = cache.find(key);
      if (cell != PieceCache::kNone) sweep.insert(key);
      if (cell == PieceCache::kNone) {
        cell = cache.take(key);
        cache.arrive(cell);
      }
      cache.pin(cell);
      cache.unpin(cell, PieceUse::kSwept);
    }
  }
  EXPECT_GT(hits[1].size(), cache.n_cells() * 8 / 10);
  EXPECT_EQ(hits[1], hits[2]);
}

TEST(PieceCache, ASweepLeavesWhatWasSelected) {
  MemoryAccount account(1 << 20);
  PieceCache cache(4096, 0, account);
  const auto use = [&](uint64_t key, PieceUse how) {
    Cell cell = cache.find(key);
    const bool hit = cell != PieceCache::kNone;
    if (!hit) {
      cell = cache.take(key);
      cache.arrive(cell);
    }
    cache.pin(cell);
    cache.unpin(cell, how);
    return hit;
  };
  for (uint64_t key = 1; key <= 100; ++key) use(key, PieceUse::kSelected);
  for (uint64_t key = 1000; key <= 5000; ++key) use(key, PieceUse::kSwept);
  for (uint64_t key = 1; key <= 100; ++key) EXPECT_TRUE(use(key, PieceUse::kSelected)) << key;
}

TEST(PieceCache, GivesSpareMemoryBackWhenNothingIsInUse) {
  MemoryAccount account(4 << 20);
  PieceCache cache(4096, 0, account);
  std::vector<Cell> cells;
  for (uint64_t key = 1; key <= 600; ++key) {
    cells.push_back(cache.take(key));
    cache.arrive(cells.back());
  }
  cache.pin(cells[599]);
  const uint64_t before = account.used_bytes();
  while (cells[599] < cache.n_cells() - 64) {
    cache.begin_shrinking();
    ASSERT_TRUE(cache.finish_shrinking());
  }
  cache.begin_shrinking();
  EXPECT_FALSE(cache.finish_shrinking()) << "one of its cells is pinned";
  EXPECT_EQ(cache.find(600), cells[599]);
  cache.unpin(cells[599]);
  EXPECT_TRUE(cache.finish_shrinking());
  EXPECT_EQ(cache.find(600), PieceCache::kNone);
  EXPECT_EQ(cache.find(1), cells[0]);
  EXPECT_LT(account.used_bytes(), before);
  const size_t n_cells = cache.n_cells();
  EXPECT_TRUE(cache.finish_shrinking()) << "somebody else has finished it";
  EXPECT_EQ(cache.n_cells(), n_cells);
}

TEST(PieceCache, TwoMayShareALimit) {
  MemoryAccount account;
  constexpr uint64_t kLimit = 4 << 20;
  PieceCache first(4096, kLimit, account), second(4096, kLimit, account);
  first.share_limit(second);
  second.share_limit(first);
  for (uint64_t key = 1; key <= 4000; ++key) {
    PieceCache& cache = key % 3 == 0 ? second : first;
    cache.arrive(cache.take(key));
  }
  EXPECT_LE(account.used_bytes(), kLimit);
  EXPECT_GT(account.used_bytes(), kLimit * 8 / 10);
}

TEST(PieceCache, RefusesAnAccountWithoutRoomForTheFirstCells) {
  MemoryAccount account(1000);
  EXPECT_THROW(PieceCache(4096, 0, account), Error);
  EXPECT_EQ(account.used_bytes(), 0u);
}

}  // namespace
}  // namespace quire
