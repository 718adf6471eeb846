#include "store/selection.h"

#include <gtest/gtest.h>

namespace quire {
namespace {

TEST(Selection, AllIsEveryBitOfEveryWord) {
  const Selection all = Selection::all();
  EXPECT_TRUE(all.is_all());
  EXPECT_EQ(all.word(0, 0), ~uint64_t{0});
  EXPECT_EQ(all.word(7, 1000000), ~uint64_t{0});
}

TEST(Selection, MarksLandInTheirHeadPageAndBit) {
  Selection selection(2, 3);
  EXPECT_FALSE(selection.is_all());
  for (size_t head = 0; head < 2; ++head) {
    for (size_t page = 0; page < 3; ++page) EXPECT_EQ(selection.word(head, page), 0u);
  }
  selection.mark(0, 0);
  selection.mark(0, 63);
  selection.mark(1, 64);
  selection.mark(1, 191);
  selection.mark(1, 191);
  EXPECT_EQ(selection.word(0, 0), uint64_t{1} | uint64_t{1} << 63);
  EXPECT_EQ(selection.word(0, 1), 0u);
  EXPECT_EQ(selection.word(1, 0), 0u);
  EXPECT_EQ(selection.word(1, 1), 1u);
  EXPECT_EQ(selection.word(1, 2), uint64_t{1} << 63);
}

TEST(Selection, IsAValue) {
  Selection first(1, 1);
  first.mark(0, 5);
  Selection second = first;
  second.mark(0, 6);
  EXPECT_EQ(first.word(0, 0), uint64_t{1} << 5);
  EXPECT_EQ(second.word(0, 0), uint64_t{3} << 5);
  second = Selection::all();
  EXPECT_TRUE(second.is_all());
}

}  // namespace
}  // namespace quire
