#include "attention/partial_state.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "attention/attend.h"

namespace quire {
namespace {

constexpr float kNone = -std::numeric_limits<float>::infinity();

TEST(PartialState, StartsAsThatOfNoTokens) {
  const PartialState state(2, 3);
  EXPECT_EQ(state.m, (std::vector<float>{kNone, kNone}));
  EXPECT_EQ(state.l, (std::vector<float>{0, 0}));
  EXPECT_EQ(state.o, std::vector<float>(6, 0.0f));
  EXPECT_EQ(state.log_sum(1), -std::numeric_limits<double>::infinity());
  std::vector<float> out(6, 9.0f);
  state.write_output(out.data(), 3);
  EXPECT_EQ(out, std::vector<float>(6, 0.0f));
}

TEST(PartialState, OutputIsDividedAndWrittenWithTheStrideGiven) {
  PartialState state(2, 2);
  state.m = {1.0f, 2.0f};
  state.l = {2.0f, 4.0f};
  state.o = {2.0f, 6.0f, 4.0f, 20.0f};
  std::vector<float> out(6, 9.0f);
  state.write_output(out.data(), 3);
  EXPECT_EQ(out, (std::vector<float>{1, 3, 9, 1, 5, 9}));
  EXPECT_DOUBLE_EQ(state.log_sum(0), 1 + std::log(2.0));
}

TEST(PartialState, MergeWeighsByTheMaxima) {
  PartialState a(1, 1);
  a.m = {0.0f};
  a.l = {1.0f};
  a.o = {10.0f};
  PartialState b(1, 1);
  b.m = {std::log(3.0f)};
  b.l = {1.0f};
  b.o = {20.0f};
  a.merge(b);
  float out = 0;
  a.write_output(&out, 1);
  EXPECT_NEAR(out, (10.0 + 3 * 20.0) / 4, 1e-5);
  EXPECT_NEAR(a.log_sum(0), std::log(4.0), 1e-6);
  a.clear();
  EXPECT_EQ(a.m[0], kNone);
  EXPECT_EQ(a.o[0], 0.0f);
}

TEST(Runs, CoverTheTokens) {
  EXPECT_EQ(runs_for(0), 0u);
  EXPECT_EQ(runs_for(1), 1u);
  EXPECT_EQ(runs_for(kPagesPerRun * 64), 1u);
  EXPECT_EQ(runs_for(kPagesPerRun * 64 + 1), 2u);
}

}  // namespace
}  // namespace quire
