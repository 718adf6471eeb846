#include "study/chance.h"

#include <gtest/gtest.h>

#include <numeric>
#include <set>

namespace quire {
namespace {

TEST(Chance, BelowReachesAllAndNoMore) {
  Random random(1);
  std::set<size_t> seen;
  for (int i = 0; i < 200; ++i) seen.insert(below(random, 7));
  EXPECT_EQ(seen, (std::set<size_t>{0, 1, 2, 3, 4, 5, 6}));
}

TEST(Chance, ChoosesDifferentNumbers) {
  Random random(2);
  for (const size_t k : {0, 1, 5, 10}) {
    const std::vector<size_t> chosen = choose(random, 10, k);
    EXPECT_EQ(std::set<size_t>(chosen.begin(), chosen.end()).size(), k);
    for (const size_t i : chosen) EXPECT_LT(i, 10u);
  }
}

TEST(Chance, ShuffleKeepsTheValuesAndNotTheOrder) {
  Random random(3);
  std::vector<int> values(50);
  std::iota(values.begin(), values.end(), 0);
  const std::vector<int> before = values;
  shuffle(random, values);
  EXPECT_NE(values, before);
  std::sort(values.begin(), values.end());
  EXPECT_EQ(values, before);
}

TEST(Chance, RandomOfTellsItsNumbersApart) {
  const auto first = [](uint64_t seed, uint64_t a, uint64_t b) { return random_of(seed, a, b).next(); };
  EXPECT_EQ(first(1, 2, 3), first(1, 2, 3));
  EXPECT_EQ(
      (std::set<uint64_t>{first(1, 2, 3), first(2, 1, 3), first(1, 3, 2), first(0, 2, 3), first(1, 2, 0)})
          .size(),
      5u);
}

}  // namespace
}  // namespace quire
