// Which rows the policies that drop rows let go.
#include "policy/retention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
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

// Steps of any size; whatever the policies leave they can hold, and a head with rows too many cannot be.
TEST(Retention, WhatIsKeptCanBeHeld) {
  test::Random random(8);
  const Policy policies[] = {Policy::kWindow, Policy::kLog, Policy::kHeavyHitters, Policy::kKeyformer,
                             Policy::kSnapKv};
  for (const Policy policy : policies) {
    PolicyChoice keep = PolicyChoice::usual(policy);
    if (keep.budget.given()) keep.budget = {0, 30};
    if (policy == Policy::kWindow) keep.values[0] = 20;
    const auto retention = make_retention(keep, 4);
    HeadRows rows;
    EXPECT_TRUE(retention->can_hold(rows, 0));
    for (size_t n_total = 0; n_total < 900;) {
      const size_t n_new = 1 + random.below(90);
      const RowStep step = {rows.positions.size(), n_new, n_total + n_new};
      for (; n_total < step.n_total; ++n_total) {
        rows.positions.push_back(static_cast<uint32_t>(n_total));
        rows.mass.push_back(static_cast<float>(random.below(1000)));
      }
      std::vector<uint32_t> dropped;
      const size_t n_drop = rows.positions.size() - retention->rows_after(step);
      if (n_drop > 0) retention->choose(rows, step, n_drop, dropped);
      std::sort(dropped.begin(), dropped.end(), std::greater<>());
      for (const uint32_t i : dropped) {
        rows.positions.erase(rows.positions.begin() + static_cast<ptrdiff_t>(i));
        rows.mass.erase(rows.mass.begin() + static_cast<ptrdiff_t>(i));
      }
      ASSERT_TRUE(retention->can_hold(rows, n_total)) << info(policy).name << " " << n_total;
    }
    const auto refused = [&](const HeadRows& other) { return !retention->can_hold(other, 900); };
    HeadRows one;
    one.positions = {5};
    HeadRows many;
    many.positions.resize(898);
    std::iota(many.positions.begin(), many.positions.end(), 0u);
    EXPECT_TRUE(refused(one) || policy == Policy::kHeavyHitters || policy == Policy::kKeyformer);
    EXPECT_TRUE(refused(many) || policy == Policy::kSnapKv);
  }
}

// Attention of keys that hold no numbers is none either; such rows leave first, and no order is asked of
// them.
TEST(Retention, MassThatIsNoNumberLeavesFirst) {
  const auto retention = make_retention(choice(Policy::kHeavyHitters, {0, 10}), 0);
  std::vector<float> mass(200, 1.0f);
  for (size_t p = 0; p < 195; ++p) {
    if (p % 3 != 0 || p > 150) mass[p] = std::numeric_limits<float>::quiet_NaN();
  }
  const Positions kept = kept_positions(*retention, shuffled(mass, 3), {199, 1, 200});
  EXPECT_EQ(kept, (Positions{138, 141, 144, 147, 150, 195, 196, 197, 198, 199}));
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
