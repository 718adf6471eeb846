#include "study/repetition.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "engine/random.h"

namespace quire {
namespace {

using Tokens = std::vector<int32_t>;

// `times` times the tokens first..first + n - 1, with a token between them that occurs once.
Tokens spelled(int32_t first, size_t n, size_t times) {
  Tokens tokens;
  for (size_t i = 0; i < times; ++i) {
    tokens.push_back(1000 + static_cast<int32_t>(i));
    for (size_t j = 0; j < n; ++j) tokens.push_back(first + static_cast<int32_t>(j));
  }
  return tokens;
}

TEST(TokensToRepeat, IsWhereTheFifthPlaceEnds) {
  EXPECT_EQ(tokens_to_repeat(spelled(0, 10, 5)), 55u);
  EXPECT_EQ(tokens_to_repeat(spelled(0, 10, 8)), 55u);
  EXPECT_EQ(tokens_to_repeat(spelled(0, 10, 4)), 0u);
  EXPECT_EQ(tokens_to_repeat(spelled(0, 9, 50)), 0u);  // a token too short
  Tokens tokens = spelled(0, 10, 5);
  tokens.pop_back();
  EXPECT_EQ(tokens_to_repeat(tokens), 0u);
}

// A run of one token holds as many places as fit side by side.
TEST(TokensToRepeat, PlacesDoNotOverlap) {
  EXPECT_EQ(tokens_to_repeat(Tokens(49, 7)), 0u);
  EXPECT_EQ(tokens_to_repeat(Tokens(50, 7)), 50u);
  Tokens tokens = {1, 2, 3};
  tokens.insert(tokens.end(), 60, 7);
  EXPECT_EQ(tokens_to_repeat(tokens), 53u);
  // A loop of 3 tokens: the same ten stand every 3, side by side every 12.
  Tokens loop;
  for (int32_t i = 0; i < 100; ++i) loop.push_back(i % 3);
  EXPECT_EQ(tokens_to_repeat(loop), 4u * 12 + 10);
}

TEST(TokensToRepeat, OfOtherSizes) {
  EXPECT_EQ(tokens_to_repeat(Tokens{}, 1, 1), 0u);
  EXPECT_EQ(tokens_to_repeat(Tokens{5}, 1, 1), 1u);
  EXPECT_EQ(tokens_to_repeat(Tokens{5, 6, 5, 6}, 2, 2), 4u);
  EXPECT_EQ(tokens_to_repeat(Tokens{5, 6, 5, 6}, 1, 2), 3u);
  EXPECT_EQ(tokens_to_repeat(Tokens{5, 5, 5}, 2, 2), 0u);
}

// By trying all places: the most that do not overlap, of each beginning.
size_t by_trial(const Tokens& tokens, size_t n, size_t times) {
  for (size_t length = n; length <= tokens.size(); ++length) {
    for (size_t first = 0; first + n <= length; ++first) {
      size_t count = 0;
      for (size_t i = first; i + n <= length;) {
        const auto at = [&](size_t j) { return tokens.begin() + static_cast<std::ptrdiff_t>(j); };
        const bool same = std::equal(at(first), at(first + n), at(i));
        count += same;
        i += same ? n : 1;
      }
      if (count >= times) return length;
    }
  }
  return 0;
}

TEST(TokensToRepeat, IsWhatTrialFinds) {
  Random random(3);
  size_t n_found = 0;
  for (int round = 0; round < 300; ++round) {
    Tokens tokens(40);
    for (int32_t& token : tokens) token = static_cast<int32_t>(random.next() % 3);
    const size_t n = 1 + random.next() % 4;
    const size_t times = 1 + random.next() % 4;
    const size_t found = tokens_to_repeat(tokens, n, times);
    EXPECT_EQ(found, by_trial(tokens, n, times));
    n_found += found > 0;
  }
  EXPECT_GT(n_found, 100u);
  EXPECT_LT(n_found, 300u);
}

TEST(DistinctShare, OfTokensInARow) {
  EXPECT_EQ(distinct_share(Tokens{1, 2, 3, 4, 5}), 1);
  EXPECT_EQ(distinct_share(Tokens(11, 7)), 1.0 / 8);
  EXPECT_EQ(distinct_share(Tokens{1, 2, 1, 2, 1, 2}, 2), 2.0 / 5);
  EXPECT_EQ(distinct_share(Tokens{1, 1}, 4), 1);
  EXPECT_EQ(distinct_share(Tokens{}, 1), 1);
}

}  // namespace
}  // namespace quire
