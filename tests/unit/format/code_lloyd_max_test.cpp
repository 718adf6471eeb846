// The solver against the tables of the papers and of our own simulation.
#include "format/lloyd_max.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace quire {
namespace {

void expect_table(const Quantizer& made, double scale, const std::vector<double>& centroids,
                  double distortion, double tolerance) {
  ASSERT_EQ(made.centroids.size(), centroids.size());
  ASSERT_EQ(made.thresholds.size(), centroids.size() - 1);
  for (size_t i = 0; i < centroids.size(); ++i)
    EXPECT_NEAR(made.centroids[i] * scale, centroids[i], tolerance);
  EXPECT_NEAR(made.distortion, distortion, 1.5e-5);
}

TEST(LloydMax, NormalDensity) {
  expect_table(normal_quantizer(1), 1.0, {0.79788}, 0.36338, 1e-5);
  expect_table(normal_quantizer(2), 1.0, {0.45278, 1.51042}, 0.11748, 1e-5);
  expect_table(normal_quantizer(3), 1.0, {0.24509, 0.75601, 1.34391, 2.15195}, 0.03455, 1e-5);
  expect_table(normal_quantizer(4), 1.0,
               {0.12840, 0.38805, 0.65676, 0.94234, 1.25623, 1.61805, 2.06902, 2.73259}, 0.009501, 1e-5);
  expect_table(normal_quantizer(5), 1.0,
               {0.06589, 0.19805, 0.33138, 0.46670, 0.60493, 0.74714, 0.89457, 1.04878, 1.21180, 1.38634,
                1.57623, 1.78723, 2.02873, 2.31774, 2.69112, 3.26073},
               0.002505, 1e-5);
}

TEST(LloydMax, ThresholdsOfTheNormalDensity) {
  const std::vector<std::vector<double>> tables = {
      {},
      {0.98160},
      {0.50055, 1.04996, 1.74793},
      {0.25822, 0.52240, 0.79955, 1.09929, 1.43714, 1.84353, 2.40080}};
  for (int bits = 1; bits <= 4; ++bits) {
    const Quantizer made = normal_quantizer(bits);
    const std::vector<double>& table = tables[static_cast<size_t>(bits - 1)];
    ASSERT_EQ(made.thresholds.size(), table.size());
    for (size_t i = 0; i < table.size(); ++i) EXPECT_NEAR(made.thresholds[i], table[i], 1e-5);
  }
}

TEST(LloydMax, CoordinatesOfUnitVectors) {
  const double eight = 8.0;
  expect_table(coordinate_quantizer(1, 64), eight, {0.8010}, 0.35839, 1e-4);
  expect_table(coordinate_quantizer(2, 64), eight, {0.4521, 1.5000}, 0.11453, 1e-4);
  expect_table(coordinate_quantizer(3, 64), eight, {0.2438, 0.7507, 1.3293, 2.1113}, 0.03339, 1e-4);
  expect_table(coordinate_quantizer(4, 64), eight,
               {0.1274, 0.3847, 0.6505, 0.9319, 1.2394, 1.5908, 2.0233, 2.6464}, 0.00913, 1e-4);
  const double root = std::sqrt(128.0);
  expect_table(coordinate_quantizer(1, 128), root, {0.7994}, 0.36089, 1e-4);
  expect_table(coordinate_quantizer(2, 128), root, {0.4525, 1.5052}, 0.11600, 1e-4);
  expect_table(coordinate_quantizer(3, 128), root, {0.2444, 0.7533, 1.3366, 2.1315}, 0.03397, 1e-4);
  expect_table(coordinate_quantizer(4, 128), root,
               {0.1279, 0.3864, 0.6536, 0.9371, 1.2478, 1.6043, 2.0459, 2.6889}, 0.00931, 1e-4);
}

TEST(LloydMax, DistortionRespectsTheBoundsOfThePaper) {
  for (int head_dim : {8, 40, 64, 100, 128, 256}) {
    for (int bits = 1; bits <= 4; ++bits) {
      const double distortion = coordinate_quantizer(bits, head_dim).distortion;
      EXPECT_LE(distortion, 2.7207 * std::pow(4.0, -bits)) << head_dim;
      // The lower bound holds for vectors of any length; a coordinate code of a short vector comes near it.
      EXPECT_GE(distortion, std::pow(4.0, -bits)) << head_dim;
    }
  }
}

TEST(LloydMax, CodebooksAreSymmetricAndRise) {
  for (int head_dim : {8, 40, 64, 100, 256}) {
    for (int bits = 1; bits <= 4; ++bits) {
      const Codebook book = make_codebook({CodebookKind::kCoordinate, bits}, head_dim);
      const int half = 1 << (bits - 1);
      for (int m = 0; m < half; ++m) EXPECT_EQ(book.centroids[m], -book.centroids[half + m]);
      EXPECT_GT(book.centroids[half], 0.0f);
      for (int m = 0; m + 1 < half; ++m) {
        EXPECT_LT(book.centroids[half + m], book.thresholds[m]);
        EXPECT_LT(book.thresholds[m], book.centroids[half + m + 1]);
      }
    }
  }
}

TEST(LloydMax, NoCodebookIsEmpty) {
  const Codebook book = make_codebook({CodebookKind::kNone, 4}, 64);
  for (float centroid : book.centroids) EXPECT_EQ(centroid, 0.0f);
}

// E r^2 = 2 / d, and the squared length of two of d coordinates has mean 2 / d.
TEST(LloydMax, LengthsOfPairs) {
  const Quantizer made = pair_quantizer(3, 64);
  ASSERT_EQ(made.centroids.size(), 8u);
  for (size_t i = 0; i + 1 < made.centroids.size(); ++i) {
    EXPECT_NEAR(made.thresholds[i], 0.5 * (made.centroids[i] + made.centroids[i + 1]), 1e-12);
  }
  // Rayleigh at high d: the 3-bit code of r keeps all but about 0.6 % of E r^2.
  EXPECT_GT(made.distortion, 0.004);
  EXPECT_LT(made.distortion, 0.008);
}

}  // namespace
}  // namespace quire
