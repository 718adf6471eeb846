// quantize_row against blocks frozen from the PyPI package `gguf` (make_quantize_vectors.py), and the _K
// types, which it does not make, by their errors.
#include "weights/quantize.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <iterator>
#include <limits>
#include <vector>

#include "base/half.h"

namespace quire {
namespace {

#include "unit/weights/quantize_vectors.inc"

struct ExpectedBlocks {
  TensorType type;
  const uint8_t* blocks;
  size_t n_bytes;
};

#define EXPECTED(TYPE) \
  ExpectedBlocks { TensorType::TYPE, k##TYPE, std::size(k##TYPE) }

const ExpectedBlocks kExpectedBlocks[] = {EXPECTED(Q4_0), EXPECTED(Q4_1), EXPECTED(Q5_0), EXPECTED(Q5_1),
                                          EXPECTED(Q8_0), EXPECTED(F16),  EXPECTED(BF16)};

std::vector<float> frozen_values() {
  std::vector<float> values(std::size(kValues));
  std::memcpy(values.data(), kValues, sizeof kValues);
  return values;
}

TEST(Quantize, EqualsTheGgufPackageByteForByte) {
  const std::vector<float> values = frozen_values();
  for (const ExpectedBlocks& expected : kExpectedBlocks) {
    ASSERT_EQ(expected.n_bytes, row_bytes(expected.type, values.size()));
    std::vector<uint8_t> blocks(expected.n_bytes);
    ASSERT_TRUE(quantize_row(expected.type, values.data(), blocks.data(), values.size()));
    for (size_t i = 0; i < blocks.size(); ++i) {
      ASSERT_EQ(blocks[i], expected.blocks[i])
          << tensor_type_name(expected.type) << " block " << i / block_bytes(expected.type) << " byte "
          << i % block_bytes(expected.type);
    }
  }
}

// Like weights: normal, some blocks of other sizes, one with a far outlier, one of zeros.
std::vector<float> weights(size_t n) {
  std::vector<float> values(n);
  uint64_t state = 7;
  for (size_t i = 0; i < n; ++i) {
    float sum = 0;
    for (int k = 0; k < 12; ++k) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      sum += static_cast<float>(state >> 40) / static_cast<float>(1 << 24);
    }
    values[i] = (sum - 6) * (i / 256 % 3 == 0 ? 0.02f : 1.5f);
  }
  for (size_t i = 512; i < 768; ++i) values[i] = 0;
  values[300] = 40;
  return values;
}

double relative_error(TensorType type, const std::vector<float>& values) {
  std::vector<uint8_t> blocks(row_bytes(type, values.size()));
  std::vector<float> decoded(values.size());
  EXPECT_TRUE(quantize_row(type, values.data(), blocks.data(), values.size()));
  dequantize_row(type, blocks.data(), decoded.data(), values.size());
  double error = 0, total = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    error += std::pow(static_cast<double>(decoded[i]) - values[i], 2);
    total += std::pow(static_cast<double>(values[i]), 2);
  }
  return std::sqrt(error / total);
}

// With a scale to every 16 or 32 values and b bits for each, normal values keep about 2^-b of their size.
TEST(Quantize, KTypesKeepNormalValues) {
  const std::vector<float> values = weights(256 * 40);
  const double q4_k = relative_error(TensorType::Q4_K, values);
  const double q5_k = relative_error(TensorType::Q5_K, values);
  const double q6_k = relative_error(TensorType::Q6_K, values);
  EXPECT_LT(q4_k, 0.08);
  EXPECT_LT(q5_k, 0.038);
  EXPECT_LT(q6_k, 0.020);
  // The search for scales pays: better than the plain ranges of the same bits in half as many values.
  EXPECT_LT(q4_k, relative_error(TensorType::Q4_1, values));
  EXPECT_LT(q5_k, relative_error(TensorType::Q5_1, values));
  EXPECT_LT(q6_k, q5_k);
  EXPECT_LT(relative_error(TensorType::Q8_0, values), q6_k);
}

TEST(Quantize, WhatATypeDecodesItEncodesNearly) {
  const std::vector<float> values = weights(256 * 4);
  for (const TensorType type : {TensorType::Q4_K, TensorType::Q5_K, TensorType::Q6_K}) {
    std::vector<uint8_t> blocks(row_bytes(type, values.size()));
    std::vector<float> decoded(values.size());
    ASSERT_TRUE(quantize_row(type, values.data(), blocks.data(), values.size()));
    dequantize_row(type, blocks.data(), decoded.data(), values.size());
    EXPECT_LT(relative_error(type, decoded), 0.02) << tensor_type_name(type);
    for (size_t i = 512; i < 768; ++i) ASSERT_EQ(decoded[i], 0) << tensor_type_name(type);
  }
}

// Blocks at the edges of what can be: all equal, all of one sign, tiny, and one value alone.
TEST(Quantize, OddBlocksOfKTypesStayClose) {
  std::vector<std::vector<float>> blocks(6, std::vector<float>(256, 0.0f));
  for (size_t i = 0; i < 256; ++i) {
    blocks[0][i] = 0.75f;
    blocks[1][i] = -0.75f;
    blocks[2][i] = 3 + static_cast<float>(i) / 512;
    blocks[3][i] = 1e-20f * static_cast<float>(i);
    blocks[5][i] = i % 2 == 0 ? 60000.0f : -60000.0f;
  }
  blocks[4][99] = -2;
  for (const TensorType type : {TensorType::Q4_K, TensorType::Q5_K, TensorType::Q6_K}) {
    for (size_t b = 0; b < blocks.size(); ++b) {
      std::vector<uint8_t> encoded(block_bytes(type));
      std::vector<float> decoded(256);
      ASSERT_TRUE(quantize_row(type, blocks[b].data(), encoded.data(), 256));
      dequantize_row(type, encoded.data(), decoded.data(), 256);
      float most = 0;
      for (const float value : blocks[b]) most = std::max(most, std::fabs(value));
      for (size_t i = 0; i < 256; ++i) {
        ASSERT_NEAR(decoded[i], blocks[b][i], most * 0.09 + 1e-7)
            << tensor_type_name(type) << " " << b << " " << i;
      }
    }
  }
}

TEST(Quantize, ValuesThatDoNotFitAreTold) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (const TensorType type : {TensorType::Q4_0, TensorType::Q4_1, TensorType::Q5_0, TensorType::Q5_1,
                                TensorType::Q8_0, TensorType::Q4_K, TensorType::Q5_K, TensorType::Q6_K}) {
    for (const float bad : {infinity, -infinity, std::nanf(""), 3e38f, -3e38f}) {
      std::vector<float> values(512, 0.5f);
      values[300] = bad;
      std::vector<uint8_t> blocks(row_bytes(type, values.size()));
      EXPECT_FALSE(quantize_row(type, values.data(), blocks.data(), values.size()))
          << tensor_type_name(type) << bad;
    }
  }
  uint16_t half = 0;
  const float large = 65520, largest = 65519, tiny = 1e-45f;
  EXPECT_FALSE(quantize_row(TensorType::F16, &large, &half, 1));
  EXPECT_TRUE(quantize_row(TensorType::F16, &largest, &half, 1));
  EXPECT_TRUE(quantize_row(TensorType::F16, &infinity, &half, 1));  // as it was
  EXPECT_TRUE(quantize_row(TensorType::BF16, &large, &half, 1));
  // A block whose scale has no inverse becomes zeros.
  const std::vector<float> values(32, tiny);
  std::vector<uint8_t> block(block_bytes(TensorType::Q8_0));
  EXPECT_TRUE(quantize_row(TensorType::Q8_0, values.data(), block.data(), 32));
  for (const uint8_t byte : block) EXPECT_EQ(byte, 0);
}

}  // namespace
}  // namespace quire
