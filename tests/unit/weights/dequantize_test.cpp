// dequantize_row against values frozen from the PyPI package `gguf` (make_dequant_vectors.py).
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <vector>

#include "weights/tensor_type.h"

namespace quire {
namespace {

#include "unit/weights/dequant_vectors.inc"

struct Vectors {
  TensorType type;
  const uint8_t* blocks;
  size_t n_block_bytes;
  const uint32_t* values;
  size_t n_values;
};

#define VECTORS(TYPE)                                                               \
  Vectors {                                                                         \
    TensorType::TYPE, k##TYPE##Blocks, std::size(k##TYPE##Blocks), k##TYPE##Values, \
        std::size(k##TYPE##Values)                                                  \
  }

const Vectors kVectors[] = {
    VECTORS(F32),  VECTORS(F16),  VECTORS(BF16), VECTORS(Q4_0), VECTORS(Q4_1), VECTORS(Q5_0),
    VECTORS(Q5_1), VECTORS(Q8_0), VECTORS(Q4_K), VECTORS(Q5_K), VECTORS(Q6_K),
};

void expect_equal(const std::vector<float>& values, const Vectors& expected) {
  for (size_t i = 0; i < expected.n_values; ++i) {
    uint32_t bits = 0;
    float wanted = 0;
    std::memcpy(&bits, &values[i], sizeof bits);
    std::memcpy(&wanted, &expected.values[i], sizeof wanted);
    if (std::isnan(wanted)) {
      EXPECT_TRUE(std::isnan(values[i])) << tensor_type_name(expected.type) << " value " << i;
    } else {
      ASSERT_EQ(bits, expected.values[i]) << tensor_type_name(expected.type) << " value " << i << ": "
                                          << values[i] << " instead of " << wanted;
    }
  }
}

TEST(Dequantize, EqualsTheGgufPackageBitForBit) {
  for (const Vectors& expected : kVectors) {
    ASSERT_EQ(expected.n_block_bytes, row_bytes(expected.type, expected.n_values));
    std::vector<float> values(expected.n_values);
    dequantize_row(expected.type, expected.blocks, values.data(), expected.n_values);
    expect_equal(values, expected);
  }
}

TEST(Dequantize, BlocksNeedNoAlignment) {
  for (const Vectors& expected : kVectors) {
    for (size_t shift = 1; shift < 4; ++shift) {
      std::vector<uint8_t> shifted(expected.n_block_bytes + shift);
      std::memcpy(shifted.data() + shift, expected.blocks, expected.n_block_bytes);
      std::vector<float> values(expected.n_values);
      dequantize_row(expected.type, shifted.data() + shift, values.data(), expected.n_values);
      expect_equal(values, expected);
    }
  }
}

TEST(Dequantize, NoValuesTouchNothing) {
  for (const Vectors& expected : kVectors) dequantize_row(expected.type, nullptr, nullptr, 0);
}

TEST(Dequantize, VectorsCoverAllTypes) {
  size_t n_types = 0;
  for (uint32_t number = 0; number < 256; ++number) n_types += tensor_type_from_number(number).has_value();
  EXPECT_EQ(std::size(kVectors), n_types);
}

}  // namespace
}  // namespace quire
