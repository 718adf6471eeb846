// Quantized activations: their error, their sums, and equal bytes on every instruction set.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "property/isa.h"
#include "property/kernels/linear_case.h"

namespace quire::test {
namespace {

// Half a step of the largest value's share, and the rounding of scale, inverse and product.
constexpr double kStepError = 0.5 / kLargestCode + 2e-7;
// A block below this is zero to every product: the inverse of its scale would overflow.
constexpr double kSmallest = 0x1p-110;

void check_block(const ActivationBlock& block, const float* x, const char* what) {
  double largest = 0;
  for (int i = 0; i < kBlockColumns; ++i) largest = std::max(largest, std::fabs(static_cast<double>(x[i])));
  int sums[2] = {0, 0};
  for (int i = 0; i < kBlockColumns; ++i) {
    ASSERT_LE(std::abs(block.codes[i]), kLargestCode) << what;
    const double tiny = largest <= kSmallest ? kSmallest : 0.0;
    ASSERT_NEAR(block.value(i), x[i], largest * kStepError + tiny) << what << " value " << i;
    sums[i / 16] += block.codes[i];
  }
  ASSERT_EQ(block.sum_first, block.scale * static_cast<float>(sums[0])) << what;
  ASSERT_EQ(block.sum_second, block.scale * static_cast<float>(sums[1])) << what;
  ASSERT_EQ(block.sum, block.scale * static_cast<float>(sums[0] + sums[1])) << what;
}

void check_values(const std::vector<float>& x, size_t columns, const char* what) {
  const size_t n_tokens = x.size() / columns;
  ASSERT_LE(n_tokens, static_cast<size_t>(kTileTokens));
  const std::vector<uint8_t> wanted =
      quantized(*ops_by_name("scalar"), x.data(), columns, n_tokens, kTileTokens);
  for (const Ops* table : tables()) {
    const std::vector<uint8_t> tile = quantized(*table, x.data(), columns, n_tokens, kTileTokens);
    ASSERT_EQ(tile, wanted) << table->name << " " << what;
    for (size_t token = 0; token < static_cast<size_t>(kTileTokens); ++token) {
      for (size_t block = 0; block < columns / kBlockColumns; ++block) {
        const std::vector<float> zeros(kBlockColumns, 0.0f);
        const float* from =
            token < n_tokens ? x.data() + token * columns + block * kBlockColumns : zeros.data();
        check_block(read_block(tile.data(), block, kTileTokens, token), from, what);
        if (testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

TEST(QuantizeTile, EveryFillOfATile) {
  Random random(1);
  for (size_t n_tokens = 1; n_tokens <= kTileTokens; ++n_tokens) {
    for (const size_t columns : {32, 64, 160, 576}) {
      check_values(random.normals(n_tokens * columns), columns, "normal");
      if (HasFatalFailure()) return;
    }
  }
}

TEST(QuantizeTile, TilesOfOneHoldTheSameNumbers) {
  Random random(2);
  constexpr size_t kColumns = 96;
  const std::vector<float> x = random.normals(kTileTokens * kColumns);
  for (const Ops* table : tables()) {
    const std::vector<uint8_t> tile = quantized(*table, x.data(), kColumns, kTileTokens, kTileTokens);
    const std::vector<uint8_t> ones = quantized(*table, x.data(), kColumns, kTileTokens, 1);
    for (size_t token = 0; token < static_cast<size_t>(kTileTokens); ++token) {
      for (size_t block = 0; block < kColumns / kBlockColumns; ++block) {
        const ActivationBlock a = read_block(tile.data(), block, kTileTokens, token);
        const ActivationBlock b = read_block(ones.data(), token * (kColumns / kBlockColumns) + block, 1, 0);
        ASSERT_EQ(std::memcmp(&a, &b, sizeof a), 0)
            << table->name << " token " << token << " block " << block;
      }
    }
  }
}

TEST(QuantizeTile, ExtremeValues) {
  const auto filled = [](float value) { return std::vector<float>(64, value); };
  check_values(filled(0.0f), 32, "zeros");
  check_values(filled(-0.0f), 32, "negative zeros");
  check_values(filled(1e-40f), 32, "denormals");
  check_values(filled(0x1p-110f), 32, "where the inverse would overflow");
  check_values(filled(0x1.8p-110f), 32, "just above it");
  check_values(filled(1e30f), 32, "large");
  check_values(filled(-1e30f), 32, "large negative");
  std::vector<float> outlier(64, 0.01f);
  outlier[37] = -1e6f;
  check_values(outlier, 32, "outlier");
  check_values(outlier, 64, "outlier in its block");
}

// Ties and the ends of the code range, over many scales.
TEST(QuantizeTile, RoundingIsTheSameEverywhere) {
  Random random(3);
  std::vector<float> x(kTileTokens * 64);
  for (int round = 0; round < 200; ++round) {
    const double scale = std::exp2(random.uniform(-60, 60));
    for (float& value : x) {
      value = static_cast<float>(scale * (static_cast<double>(random.below(130049)) / 2 - kLargestCode) /
                                 kLargestCode);
    }
    check_values(x, 64, "ties");
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace quire::test
