// Where copies of coded rows lie.
#include "store/row_copies.h"

#include <gtest/gtest.h>

namespace quire {
namespace {

TEST(CopyTable, SlotsAndWords) {
  CopyTable table(16, 4);
  EXPECT_EQ(table.n_pages(), 0u);
  EXPECT_EQ(table.put(0), 0u);  // sinks have no copy
  EXPECT_EQ(table.word(0), 0xfff0u);
  EXPECT_EQ(table.lanes(0), 0xfff0u);
  EXPECT_EQ(table.n_rows(), 12u);
  EXPECT_EQ(table.rows_of(0), 12u);
  EXPECT_EQ(table.put(7), 1u);
  EXPECT_EQ(table.word(1), 0xffffull << 48);
  EXPECT_EQ(table.lanes(0), 0xfffffff0u);
  for (size_t page = 8; page < 12; ++page) table.put(page);
  EXPECT_EQ(table.word(2), ~uint64_t{0});
  EXPECT_EQ(table.n_pages(), 2u);
  table.remove(11);
  table.remove(10);
  EXPECT_EQ(table.n_pages(), 1u);
  table.remove(7);
  EXPECT_EQ(table.word(1), 0u);
  EXPECT_EQ(table.put(20), 1u);
  EXPECT_EQ(table.page_in(1), 20u);
  table.clear();
  EXPECT_EQ(table.n_rows(), 0u);
  EXPECT_EQ(table.word(2), 0u);
  EXPECT_EQ(table.put(3), 0u);
}

// Small pages that do not divide a page lie in two of them.
TEST(CopyTable, PagesOfAnyLength) {
  CopyTable table(10, 0);
  EXPECT_EQ(CopyTable::pages_for(7, 10), 2u);
  table.put(6);
  EXPECT_EQ(table.word(0), 0xfull << 60);
  EXPECT_EQ(table.word(1), 0x3fu);
  EXPECT_EQ(table.lanes(0), 0x3ffu);
  for (size_t page = 0; page < 6; ++page) table.put(page);
  EXPECT_EQ(table.word(0), ~uint64_t{0});
  EXPECT_EQ(table.lanes(0), (uint64_t{1} << 60) - 1);
  EXPECT_EQ(table.lanes(1), 0x3ffu);
}

TEST(CopyTable, ClearsLevels) {
  CopyTable table(16, 0);
  table.put(2);
  std::vector<uint8_t> levels(64, 9);
  table.clear_levels(levels.data());
  for (size_t t = 0; t < 64; ++t) EXPECT_EQ(levels[t], t >= 32 && t < 48 ? 0 : 9);
}

TEST(CopyTable, SinksThatFillWholePages) {
  CopyTable table(4, 10);
  table.put(0);
  EXPECT_EQ(table.n_rows(), 0u);
  EXPECT_EQ(table.rows_of(0), 0u);
  table.put(2);
  EXPECT_EQ(table.n_rows(), 2u);
  table.remove(0);
  table.remove(2);
  EXPECT_EQ(table.n_rows(), 0u);
}

}  // namespace
}  // namespace quire
