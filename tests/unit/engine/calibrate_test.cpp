#include "engine/calibrate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/error.h"
#include "engine/calibration_text.h"
#include "unit/engine/tiny_model.h"

namespace quire {
namespace {

double geometric_mean(const std::vector<float>& values) {
  double sum = 0;
  for (const float value : values) sum += std::log(static_cast<double>(value));
  return std::exp(sum / static_cast<double>(values.size()));
}

TEST(BalanceKeys, IsTheRootOfTheRatioWithGeometricMeanOne) {
  const std::vector<double> keys = {1, 4, 9, 2};
  const std::vector<double> queries = {4, 1, 1, 8};
  std::vector<float> balance(4);
  balance_keys(keys, queries, balance.data());
  EXPECT_NEAR(geometric_mean(balance), 1, 1e-6);
  for (size_t j = 1; j < 4; ++j) {
    const double expected = std::sqrt(keys[j] / queries[j]) / std::sqrt(keys[0] / queries[0]);
    EXPECT_NEAR(balance[j] / balance[0], expected, 1e-5 * expected);
  }
}

TEST(BalanceKeys, DoesNotDependOnUnits) {
  const std::vector<double> keys = {1, 4, 9, 2};
  const std::vector<double> queries = {4, 1, 1, 8};
  const std::vector<double> scaled = {0.125 * 4, 0.125, 0.125, 1};
  std::vector<float> balance(4);
  std::vector<float> other(4);
  balance_keys(keys, queries, balance.data());
  balance_keys(keys, scaled, other.data());
  for (size_t j = 0; j < 4; ++j) EXPECT_NEAR(balance[j], other[j], 1e-6);
}

TEST(BalanceKeys, DeadChannelsAreFloored) {
  std::vector<float> balance(4);
  balance_keys(std::vector<double>{1, 0, 1, 2}, std::vector<double>{1, 1, 0, 2}, balance.data());
  // A dead key channel counts as 1 % of the mean of 1, a dead query channel likewise.
  EXPECT_NEAR(balance[1] / balance[0], 0.1, 1e-6);
  EXPECT_NEAR(balance[2] / balance[0], 10, 1e-5);
  EXPECT_NEAR(balance[3] / balance[0], 1, 1e-6);
}

TEST(BalanceKeys, DeadHeadsAreLeftAlone) {
  for (const auto& [keys, queries] : {std::pair{0.0, 1.0}, {1.0, 0.0}, {0.0, 0.0}}) {
    std::vector<float> balance(2);
    balance_keys(std::vector<double>(2, keys), std::vector<double>(2, queries), balance.data());
    EXPECT_EQ(balance, std::vector<float>(2, 1.0f));
  }
}

// 2 layers, 2 query heads on 1 KV head of 2 channels; rows lie as a forward pass has them: q | k | v.
struct Scene {
  CalibrationMeter meter{Geometry{2, 2, 2, {1, 1}}};

  void show(size_t layer, size_t position, const std::vector<std::vector<float>>& rows) {
    std::vector<float> flat;
    for (const auto& row : rows) flat.insert(flat.end(), row.begin(), row.end());
    meter.rows(layer, position, rows.size(), flat.data(), flat.data() + 4, flat.data() + 6, 8);
  }
};

TEST(CalibrationMeter, MeansAndBalanceOfKnownRows) {
  Scene scene;
  for (size_t layer = 0; layer < 2; ++layer) {
    // The channels of the keys are 600 +- 2 and 0 +- 1, of the queries 1 (3 in the second head) and 2.
    scene.show(layer, 4, {{1, 2, 3, 2, 602, 1, 5, 0}, {-1, 2, -3, -2, 598, -1, 7, 0}});
    scene.show(layer, 6, {{1, -2, 3, 2, 602, -1, 5, 1}, {1, 2, 3, 2, 598, 1, 7, -1}});
  }
  const Calibration result = scene.meter.result();
  EXPECT_EQ(result.geometry.n_layers, 2u);
  EXPECT_EQ(result.key_mean, (std::vector<float>{600, 0, 600, 0}));
  EXPECT_EQ(result.value_mean, (std::vector<float>{6, 0, 6, 0}));
  // Means over tokens and heads of |q k|: q of both channels are 1 and 3 (mean 2), and 2, on keys 600 and 1.
  EXPECT_EQ(result.query_key, (std::vector<float>{1200, 2, 1200, 2}));
  const double ratio = std::sqrt((2 / std::sqrt(5.0)) / (1 / 2.0));
  EXPECT_NEAR(result.key_balance[0] / result.key_balance[1], ratio, 1e-6);
  EXPECT_NEAR(result.key_balance[0] * result.key_balance[1], 1, 1e-6);
}

TEST(CalibrationMeter, SinksAreNotMeasured) {
  Scene scene;
  for (size_t layer = 0; layer < 2; ++layer) {
    const std::vector<float> sink = {1e6, 1e6, 1e6, 1e6, 1e6, 1e6, 1e6, 1e6};
    scene.show(layer, 0, {sink, sink, sink, sink, {1, 1, 1, 1, 2, 3, 4, 5}});
  }
  const Calibration result = scene.meter.result();
  EXPECT_EQ(result.key_mean, (std::vector<float>{2, 3, 2, 3}));
  EXPECT_EQ(result.value_mean, (std::vector<float>{4, 5, 4, 5}));
}

TEST(CalibrationMeter, AHugeConstantChannelCostsNoDigits) {
  Scene scene;
  for (size_t layer = 0; layer < 2; ++layer) {
    for (size_t i = 0; i < 1000; ++i) {
      const float sign = i % 2 == 0 ? 1.0f : -1.0f;
      // 2^23: its neighbours are 1 apart.
      scene.show(layer, 4 + i, {{1, 1, 1, 1, 8388608.0f + sign, sign, 0, 0}});
    }
  }
  const Calibration result = scene.meter.result();
  EXPECT_EQ(result.key_mean[0], 8388608.0f);
  EXPECT_NEAR(result.key_balance[0], result.key_balance[1], 1e-6);
}

TEST(CalibrationMeter, RefusesNoRowsAndNoNumbers) {
  EXPECT_THROW(Scene().meter.result(), Error);
  for (const size_t at : {0u, 4u, 6u}) {
    for (const float bad :
         {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
      Scene scene;
      std::vector<float> row(8, 1.0f);
      std::vector<float> broken = row;
      broken[at] = bad;
      for (size_t layer = 0; layer < 2; ++layer) scene.show(layer, 4, {row, broken, row});
      EXPECT_THROW(scene.meter.result(), Error) << at << " " << bad;
    }
  }
}

Calibration measure(int n_threads) {
  test::TinyEngine tiny({.n_threads = n_threads});
  const std::string_view text = calibration_text().substr(0, 3000);
  return measure_calibration(tiny.engine, calibration_windows(tiny.engine, {&text, 1}));
}

TEST(MeasureCalibration, DoesNotDependOnTheThreads) {
  const Calibration one = measure(1);
  EXPECT_EQ(one.key_mean.size(), test::kTinyLayers * test::kTinyKvHeads * test::kTinyHeadDim);
  const Calibration three = measure(3);
  EXPECT_EQ(one.key_mean, three.key_mean);
  EXPECT_EQ(one.key_balance, three.key_balance);
  EXPECT_EQ(one.value_mean, three.value_mean);
  EXPECT_EQ(one.query_key, three.query_key);
}

// The cache that measures is a coded one, to be small; what it measures must be the exact rows.
TEST(MeasureCalibration, SeesTheRowsOfAnExactCache) {
  test::TinyEngine tiny;
  const std::string_view text = calibration_text().substr(0, 3000);
  const TokenWindows windows = calibration_windows(tiny.engine, {&text, 1});
  CalibrationMeter meter(tiny.engine.config().geometry());
  for (const auto& window : windows) {
    Cache cache = tiny.engine.make_cache(Recipe{});
    Workspace workspace;
    tiny.engine.forward(window, cache, workspace, {}, &meter);
  }
  const Calibration exact = meter.result();
  const Calibration measured = measure_calibration(tiny.engine, windows);
  EXPECT_EQ(exact.key_mean, measured.key_mean);
  EXPECT_EQ(exact.key_balance, measured.key_balance);
  EXPECT_EQ(exact.value_mean, measured.value_mean);
  EXPECT_EQ(exact.query_key, measured.query_key);
}

TEST(MeasureCalibration, WindowsFillTheContextAndProgressReachesTheEnd) {
  test::TinyEngine tiny;
  const std::vector<std::string_view> texts = {calibration_text().substr(0, 600),
                                               calibration_text().substr(0, 100)};
  const TokenWindows windows = calibration_windows(tiny.engine, texts);
  ASSERT_EQ(windows.size(), 4u);  // a byte is a token
  EXPECT_EQ(windows[0].size(), test::kTinyContext);
  EXPECT_EQ(count_tokens(windows), 700u);
  double last = 0;
  measure_calibration(tiny.engine, windows, [&](double share) {
    EXPECT_GE(share, last);
    last = share;
  });
  EXPECT_EQ(last, 1);
}

TEST(MeasureCalibration, RefusesAShortText) {
  test::TinyEngine tiny;
  const std::string_view text = calibration_text().substr(0, kLeastCalibrationTokens - 1);
  EXPECT_THROW(measure_calibration(tiny.engine, calibration_windows(tiny.engine, {&text, 1})), Error);
  EXPECT_THROW(measure_calibration(tiny.engine, {}), Error);
}

}  // namespace
}  // namespace quire
