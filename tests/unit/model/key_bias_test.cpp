#include "model/key_bias.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace quire {
namespace {

TEST(ExpectedKeyNorm, IsThatOfTheRowsTimesTheNormWeight) {
  const std::vector<float> rows = {1, 2, 3, -4};
  EXPECT_DOUBLE_EQ(expected_key_norm(rows, std::vector<float>{1, 1}), std::sqrt(30.0));
  EXPECT_DOUBLE_EQ(expected_key_norm(rows, std::vector<float>{2, 0.5f}), std::sqrt(4.0 + 1 + 36 + 4));
  EXPECT_EQ(expected_key_norm(std::vector<float>(4, 0.0f), std::vector<float>{1, 1}), 0);
}

TEST(KeyBiasCheck, RiskIsTheBiasInNormsOfTheKey) {
  const std::vector<float> bias = {3, 0, 0, 4};
  const KeyBiasCheck check = check_key_bias(bias, 10, 4);
  EXPECT_DOUBLE_EQ(check.bias_norm, 5);
  EXPECT_DOUBLE_EQ(check.key_norm, 10);
  EXPECT_DOUBLE_EQ(check.risk(), 0.5);
  EXPECT_FALSE(check.framed());
  EXPECT_FALSE(check_key_bias(bias, 5.01, 4).framed());
  EXPECT_TRUE(check_key_bias(bias, 4.99, 4).framed());
}

TEST(KeyBiasCheck, NoBiasIsNoRisk) {
  for (const double key_norm : {0.0, 1.0}) {
    const KeyBiasCheck check = check_key_bias(std::vector<float>(8, 0.0f), key_norm, 8);
    EXPECT_EQ(check.risk(), 0);
    EXPECT_FALSE(check.framed());
  }
}

TEST(KeyBiasCheck, KeysThatAreAllBiasAreFramed) {
  const std::vector<float> bias = {0, 1, 0, 0};
  const KeyBiasCheck check = check_key_bias(bias, 0, 4);
  EXPECT_EQ(check.risk(), std::numeric_limits<double>::infinity());
  EXPECT_EQ(check.taken_off, bias);
}

// Weights that are no numbers: nothing is known of the keys, and nothing breaks.
TEST(KeyBiasCheck, BrokenWeightsAreNotFramed) {
  const std::vector<float> bias = {100, 1, 0, 0};
  EXPECT_FALSE(check_key_bias(bias, std::numeric_limits<double>::quiet_NaN(), 4).framed());
  EXPECT_FALSE(check_key_bias(bias, std::numeric_limits<double>::infinity(), 4).framed());
}

// Pairs are (0, 3), (1, 4), (2, 5); 6 and 7 stand still. A quarter of the key's norm may stay.
TEST(KeyBiasCheck, TheLeastPairsStay) {
  const std::vector<float> bias = {0, 300, 1, 2, 0, -2, 4, 60};
  const KeyBiasCheck check = check_key_bias(bias, 19.5, 6);
  EXPECT_EQ(check.taken_off,
            (std::vector<float>{0, 300, 0, 0, 0, 0, 4, 60}));  // 4 + 5 stay, 16 would be too much
  EXPECT_EQ(check_key_bias(bias, 20.5, 6).taken_off, (std::vector<float>{0, 300, 0, 0, 0, 0, 0, 60}));
  EXPECT_EQ(check_key_bias(bias, 0.1, 6).taken_off, bias);
}

TEST(KeyBiases, HoldTheHeadsThatAreFramed) {
  const std::vector<float> bias = {5, 0, 0, 5};
  const std::vector<KeyBiasCheck> checks = {check_key_bias(bias, 100, 4), check_key_bias(bias, 1, 4)};
  EXPECT_EQ(key_biases({}, {}), nullptr);
  EXPECT_EQ(key_biases({checks.data(), 1}, {1, 0.1}), nullptr);
  const auto biases = key_biases(checks, {1, 0.1});
  ASSERT_NE(biases, nullptr);
  ASSERT_EQ(biases->heads.size(), 2u);
  EXPECT_FALSE(biases->heads[0].has_value());
  ASSERT_TRUE(biases->heads[1].has_value());
  EXPECT_EQ(biases->heads[1]->n_channels(), 4u);
}

}  // namespace
}  // namespace quire
