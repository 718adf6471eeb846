// Which rows the policies that drop rows let go.
#include "policy/retention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "property/random.h"

namespace quire {
namespace {

PolicyChoice choice(Policy policy, RowBudget budget) {
  PolicyChoice keep = PolicyChoice::usual(policy);
  keep.budget = budget;
  return keep;
}

// Rows of n tokens in a shuffled order, with the mass given by position.
HeadRows shuffled(const std::vector<float>& mass, uint64_t seed) {
  test::Random random(seed);
  HeadRows rows;
  for (uint32_t p = 0; p < mass.size(); ++p) rows.positions.push_back(p);
  for (size_t i = mass.size(); i > 1; --i) std::swap(rows.positions[i - 1], rows.positions[random.below(i)]);
  for (const uint32_t p : rows.positions) rows.mass.push_back(mass[p]);
  return rows;
}

std::vector<uint32_t> kept_positions(const Retention& retention, const HeadRows& rows, const RowStep& step) {
  const size_t n_after = retention.rows_after(step);
  std::vector<uint32_t> dropped;
  if (n_after < rows.positions.size()) retention.choose(rows, step, rows.positions.size() - n_after, dropped);
  EXPECT_EQ(rows.positions.size() - dropped.size(), n_after);
  std::vector<uint32_t> kept;
  for (uint32_t i = 0; i < rows.positions.size(); ++i) {
    if (std::find(dropped.begin(), dropped.end(), i) == dropped.end()) kept.push_back(rows.positions[i]);
  }
  std::sort(kept.begin(), kept.end());
  return kept;
}

using Positions = std::vector<uint32_t>;

TEST(Retention, WindowKeepsTheNewest) {
  PolicyChoice keep = PolicyChoice::usual(Policy::kWindow);
  keep.values[0] = 5;
  const auto retention = make_retention(keep, 2);
  // All of the first 7 fit: 2 sinks and the window.
  EXPECT_EQ(retention->rows_after({0, 7, 7}), 7u);
  EXPECT_EQ(retention->rows_after({7, 1, 8}), 5u);
  EXPECT_EQ(retention->rows_after({5, 3, 11}), 5u);
  const HeadRows rows = shuffled(std::vector<float>(8, 0.0f), 1);
  EXPECT_EQ(kept_positions(*retention, rows, {7, 1, 8}), (Positions{3, 4, 5, 6, 7}));
}

TEST(Retention, HeavyHittersKeepTheNewestAndTheHeaviest) {
  PolicyChoice keep = choice(Policy::kHeavyHitters, {0, 6});
  const auto retention = make_retention(keep, 0);
  std::vector<float> mass(10, 0.1f);
  mass[1] = 3;
  mass[4] = 2;
  mass[6] = 1;
  mass[9] = 0;  // the newest stay whatever they got
  EXPECT_EQ(kept_positions(*retention, shuffled(mass, 2), {0, 10, 10}), (Positions{1, 4, 6, 7, 8, 9}));
  EXPECT_EQ(retention->rows_after({6, 1, 11}), 6u);
  EXPECT_EQ(retention->observed_queries(1), 1u);
  EXPECT_EQ(retention->observed_queries(50), 50u);
}

// A share grows with the text, and no text of fewer than 256 rows loses any.
TEST(Retention, BudgetsByShare) {
  const auto retention = make_retention(choice(Policy::kHeavyHitters, {0.1, 0}), 0);
  EXPECT_EQ(retention->rows_after({0, 200, 200}), 200u);
  EXPECT_EQ(retention->rows_after({0, 2000, 2000}), 256u);
  EXPECT_EQ(retention->rows_after({0, 6000, 6000}), 600u);
  EXPECT_EQ(retention->rows_after({600, 1, 6001}), 601u);
  EXPECT_EQ(retention->rows_after({601, 1, 6002}), 601u);
}

TEST(Retention, SnapKvSmoothsAlongTheTextAndKeepsTheWindow) {
  PolicyChoice keep = choice(Policy::kSnapKv, {0, 9});
  keep.values[0] = 2;  // window
  keep.values[1] = 3;  // kernel
  const auto retention = make_retention(keep, 0);
  std::vector<float> mass(30, 0.0f);
  mass[10] = 9;                // 9, 10 and 11 get 3 each
  mass[20] = mass[22] = 3.3f;  // 21 gets 2.2, 19, 20, 22 and 23 get 1.1
  EXPECT_EQ(kept_positions(*retention, shuffled(mass, 3), {0, 30, 30}),
            (Positions{9, 10, 11, 20, 21, 22, 23, 28, 29}));
  // Nothing leaves while tokens come one by one.
  EXPECT_EQ(retention->rows_after({9, 1, 31}), 10u);
  EXPECT_EQ(retention->observed_queries(1), 0u);
  EXPECT_EQ(retention->observed_queries(30), 2u);
  EXPECT_TRUE(retention->forgets());
}

TEST(Retention, TheReserveWithoutCodesIsTheReserve) {
  PolicyChoice keep = PolicyChoice::usual(Policy::kLog);
  keep.values[0] = 12;
  const auto retention = make_retention(keep, 0);
  HeadRows rows;
  size_t n = 0;
  for (const size_t step : {1, 1, 14, 1, 23}) {
    for (size_t i = 0; i < step; ++i) rows.positions.push_back(static_cast<uint32_t>(n + i));
    rows.mass.resize(rows.positions.size());
    const RowStep done = {rows.positions.size() - step, step, n + step};
    rows.positions = kept_positions(*retention, rows, done);
    rows.mass.resize(rows.positions.size());
    n += step;
  }
  EXPECT_EQ(n, 40u);
  EXPECT_EQ(rows.positions, (Positions{0, 24, 28, 30, 32, 33, 34, 35, 36, 37, 38, 39}));
}

TEST(Retention, KeyformerWarmsUp) {
  const auto retention = make_retention(PolicyChoice::usual(Policy::kKeyformer), 0);
  EXPECT_TRUE(retention->observation(0).gumbel);
  EXPECT_EQ(retention->observation(0).temperature, 1);
  EXPECT_EQ(retention->observation(256).temperature, 1.5);
  EXPECT_EQ(retention->observation(512).temperature, 2);
  EXPECT_EQ(retention->observation(5000).temperature, 2);
}

}  // namespace
}  // namespace quire
