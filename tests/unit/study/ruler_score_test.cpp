#include "study/ruler_score.h"

#include <gtest/gtest.h>

namespace quire {
namespace {

TEST(MatchAll, IsTheShareFound) {
  EXPECT_EQ(match_all("the numbers are 12 and 34.", {"12", "34"}), 1);
  EXPECT_EQ(match_all("the numbers are 12 and 35.", {"12", "34"}), 0.5);
  EXPECT_EQ(match_all("none", {"12", "34", "56"}), 0);
  EXPECT_EQ(match_all("", {"12"}), 0);
  EXPECT_EQ(match_all("1234", {"12", "34", "23", "5"}), 0.75) << "as RULER finds parts of words";
}

TEST(MatchAll, CapitalsAreAlike) {
  EXPECT_EQ(match_all("Abcde FGHIJ", {"ABCDE", "fghij"}), 1);
  EXPECT_EQ(match_all("AAAA-4BBB", {"aaaa-4bbb"}), 1);
}

TEST(MatchPart, IsAnyFound) {
  EXPECT_EQ(match_part("It was PARIS.", {"London", "Paris"}), 1);
  EXPECT_EQ(match_part("It was Rome.", {"London", "Paris"}), 0);
}

}  // namespace
}  // namespace quire
