// Soft-capped scores against double precision, for every size of score, and equal over instruction sets.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "property/isa.h"
#include "property/random.h"

namespace quire::test {
namespace {

std::vector<float> some_scores() {
  Random random(1);
  std::vector<float> scores = {0.0f,   -0.0f,   25.0f, -25.0f, 0x1.8ffffep4f,
                               1e-30f, -1e-40f, 1e30f, -3e38f, 88.0f};
  for (int i = 0; i < 4000; ++i) scores.push_back(static_cast<float>(random.uniform(-300, 300)));
  for (int i = 0; i < 2000; ++i) {
    const double size = std::exp2(random.uniform(-40, 12));
    scores.push_back(static_cast<float>(random.below(2) == 0 ? size : -size));
  }
  scores.resize(scores.size() / 16 * 16);
  return scores;
}

TEST(CapScores, EqualsDoublePrecision) {
  for (const Ops* table : tables()) {
    for (const float cap : {50.0f, 30.0f, 1.0f, 0.7f, 1000.0f}) {
      const std::vector<float> before = some_scores();
      std::vector<float> scores = before;
      scores.resize(scores.size() + 16, -12345.0f);
      table->cap_scores(scores.data(), static_cast<int>(before.size()), cap);
      for (size_t i = 0; i < before.size(); ++i) {
        const double wanted = cap * std::tanh(before[i] / double{cap});
        ASSERT_NEAR(scores[i], wanted, 6e-7 * std::fabs(wanted) + 1e-38)
            << table->name << " " << before[i] << "/" << cap;
        ASSERT_LE(std::fabs(scores[i]), cap) << table->name << " " << before[i];
        ASSERT_EQ(std::signbit(scores[i]) && scores[i] != 0, before[i] < 0 && scores[i] != 0) << table->name;
      }
      for (size_t i = before.size(); i < scores.size(); ++i) ASSERT_EQ(scores[i], -12345.0f) << table->name;
    }
  }
}

// A larger score never gets a smaller value, so the rows that a selection ranks are in the same order; but
// for the rounding of a last place.
TEST(CapScores, KeepsTheOrder) {
  for (const Ops* table : tables()) {
    std::vector<float> scores(16 * 4096);
    for (size_t i = 0; i < scores.size(); ++i) scores[i] = -160.0f + static_cast<float>(i) / 200.0f;
    table->cap_scores(scores.data(), static_cast<int>(scores.size()), 50.0f);
    for (size_t i = 1; i < scores.size(); ++i) {
      ASSERT_GE(scores[i], scores[i - 1] - 8e-6f) << table->name << " at " << i;
    }
  }
}

// Lanes that hold no token do no harm to others.
TEST(CapScores, NansStayWhereTheyAre) {
  for (const Ops* table : tables()) {
    std::vector<float> scores(32, 3.0f);
    scores[5] = std::numeric_limits<float>::quiet_NaN();
    scores[17] = std::numeric_limits<float>::infinity();
    table->cap_scores(scores.data(), 32, 50.0f);
    for (size_t i = 0; i < 32; ++i) {
      if (i == 5 || i == 17) continue;
      ASSERT_EQ(scores[i], scores[0]) << table->name;
    }
    EXPECT_EQ(scores[17], 50.0f) << table->name;
  }
}

}  // namespace
}  // namespace quire::test
