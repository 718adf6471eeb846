// Choosing by the highest of many numbers, against sorting all of them.
#include "policy/highest.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "property/random.h"

namespace quire {
namespace {

std::set<size_t> chosen(const std::vector<float>& values, size_t n) {
  std::vector<float> room;
  std::set<size_t> all;
  choose_highest(values, n, room, [&](size_t i) { all.insert(i); });
  return all;
}

// Of equal values the last.
std::set<size_t> sorted(const std::vector<float>& values, size_t n) {
  std::vector<size_t> order;
  for (size_t i = values.size(); i-- > 0;) {
    if (values[i] > kNoScore) order.push_back(i);
  }
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return values[a] > values[b]; });
  order.resize(std::min(n, order.size()));
  return {order.begin(), order.end()};
}

TEST(Highest, AreThoseThatSortingGives) {
  test::Random random(1);
  for (const size_t n : {0, 1, 2, 63, 64, 65, 1000}) {
    for (const double scale : {1e-30, 0.01, 1.0, 100.0}) {
      std::vector<float> values = random.normals(n, scale);
      for (size_t i = 0; i < n; i += 5) values[i] = values[i / 2];  // equal ones
      for (size_t i = 3; i < n; i += 11) values[i] = i % 2 == 0 ? kNoScore : 0.0f;
      if (n > 60) values[60] = kCertain;
      for (const size_t n_wanted : {0, 1, 7, 64, 500, 2000}) {
        EXPECT_EQ(chosen(values, n_wanted), sorted(values, n_wanted)) << n << " " << scale << " " << n_wanted;
      }
    }
  }
}

TEST(Highest, OfEqualOnesTheLast) {
  EXPECT_EQ(chosen({1, 1, 1, 1}, 2), (std::set<size_t>{2, 3}));
  EXPECT_EQ(chosen({-0.0f, 0.0f, -0.0f, -1}, 2), (std::set<size_t>{1, 2}));
  EXPECT_EQ(chosen({kNoScore, kNoScore}, 1), std::set<size_t>{});
  EXPECT_EQ(chosen({kCertain, kCertain, 3}, 1), std::set<size_t>{1});
}

TEST(Highest, ProbabilitiesAreComparedNotScores) {
  // Two heads; the second has larger scores and no row that stands out.
  std::vector<float> scores(2 * 64, 50.0f);
  std::fill_n(scores.begin(), 64, 0.0f);
  scores[7] = 3;
  std::vector<float> best;
  best_log_probabilities(scores.data(), 1, 2, best);
  EXPECT_EQ(std::max_element(best.begin(), best.end()) - best.begin(), 7);
  EXPECT_NEAR(best[7], 3 - std::log(63 + std::exp(3.0)), 1e-5);
  EXPECT_NEAR(best[0], -std::log(64.0), 1e-5);
}

// Values by the sum over heads, against double precision.
TEST(Highest, SumsOfProbabilities) {
  test::Random random(2);
  constexpr size_t kGroup = 3;
  std::vector<float> scores = random.normals(2 * kGroup * 64, 4);
  for (size_t h = 0; h < kGroup; ++h) scores[h * 64 + 5] = kNoScore;
  std::vector<float> values;
  values_by_sum(scores.data(), 2, kGroup, values);
  std::vector<double> wanted(128, 0.0);
  const auto score = [&](size_t h, size_t i) {
    return static_cast<double>(scores[(i / 64 * kGroup + h) * 64 + i % 64]);
  };
  for (size_t h = 0; h < kGroup; ++h) {
    double sum = 0;
    for (size_t i = 0; i < 128; ++i) sum += std::exp(score(h, i));
    for (size_t i = 0; i < 128; ++i) wanted[i] += std::exp(score(h, i)) / sum;
  }
  for (size_t i = 0; i < 128; ++i) {
    if (i == 5) {
      EXPECT_EQ(values[i], kNoScore);
    } else {
      EXPECT_NEAR(values[i], wanted[i], 1e-4 * wanted[i]) << i;
    }
  }
}

// The largest score comes late, or a head's first one does: weights of the tiles before are brought to it.
TEST(Highest, SumsOverTilesWhoseLargestScoresDiffer) {
  constexpr size_t kTiles = 5;
  constexpr size_t kGroup = 2;
  test::Random random(5);
  std::vector<float> scores = random.normals(kTiles * kGroup * 64, 2);
  const std::vector<float> raised = {-9, 20, 3, 31, -40};
  for (size_t i = 0; i < scores.size(); ++i) scores[i] += raised[i / (kGroup * 64)];
  std::fill_n(scores.begin() + 64, 64, kNoScore);  // of head 1 nothing in the first tile
  std::fill_n(scores.begin() + 2 * kGroup * 64, kGroup * 64, kNoScore);
  std::vector<float> values;
  values_by_sum(scores.data(), kTiles, kGroup, values);
  std::vector<double> wanted(kTiles * 64, 0.0);
  const auto score = [&](size_t h, size_t i) {
    return static_cast<double>(scores[(i / 64 * kGroup + h) * 64 + i % 64]);
  };
  for (size_t h = 0; h < kGroup; ++h) {
    double sum = 0;
    for (size_t i = 0; i < wanted.size(); ++i) sum += std::exp(score(h, i));
    for (size_t i = 0; i < wanted.size(); ++i) wanted[i] += std::exp(score(h, i)) / sum;
  }
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (i / 64 == 2) {
      EXPECT_EQ(values[i], kNoScore);
    } else {
      EXPECT_NEAR(values[i], wanted[i], 1e-4 * wanted[i]) << i;
    }
  }
}

// The order is that of the scores where their exponentials are no numbers any more.
TEST(Highest, SumsThatUnderflowKeepTheirOrder) {
  std::vector<float> scores(2 * 64, kNoScore);
  for (size_t i = 0; i < 60; ++i) {
    scores[i] = -10.0f * static_cast<float>((i * 7) % 60);
    scores[64 + i] = scores[i] - 5;
  }
  std::vector<float> values;
  values_by_sum(scores.data(), 1, 2, values);
  for (size_t i = 0; i < 60; ++i) {
    for (size_t j = 0; j < 60; ++j) EXPECT_EQ(values[i] < values[j], scores[i] < scores[j]) << i << " " << j;
  }
  for (size_t i = 60; i < 64; ++i) EXPECT_EQ(values[i], kNoScore);
}

// A head with an infinite score, or with none, does not spoil what the others say.
TEST(Highest, SumsLeaveOutHeadsThatAreNoSoftmax) {
  std::vector<float> scores(3 * 64, kNoScore);
  for (size_t i = 0; i < 64; ++i) scores[i] = 0.1f * static_cast<float>(i * 29 % 64);
  std::fill_n(scores.begin() + 64, 64, 1.0f);
  scores[64 + 3] = kCertain;
  std::vector<float> values;
  values_by_sum(scores.data(), 1, 3, values);
  for (size_t i = 0; i < 64; ++i) {
    EXPECT_TRUE(std::isfinite(values[i])) << i;
    for (size_t j = 0; j < 64; ++j) EXPECT_EQ(values[i] < values[j], scores[i] < scores[j]);
  }
}

}  // namespace
}  // namespace quire
