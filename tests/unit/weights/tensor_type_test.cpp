#include "weights/tensor_type.h"

#include <gtest/gtest.h>

#include <string>

namespace quire {
namespace {

struct ExpectedType {
  uint32_t number;
  const char* name;
  uint32_t n_values;
  uint32_t n_bytes;
};

// As in gguf.constants.GGML_QUANT_SIZES.
constexpr ExpectedType kExpectedTypes[] = {
    {0, "F32", 1, 4},       {1, "F16", 1, 2},       {2, "Q4_0", 32, 18}, {3, "Q4_1", 32, 20},
    {6, "Q5_0", 32, 22},    {7, "Q5_1", 32, 24},    {8, "Q8_0", 32, 34}, {12, "Q4_K", 256, 144},
    {13, "Q5_K", 256, 176}, {14, "Q6_K", 256, 210}, {30, "BF16", 1, 2},
};

TEST(TensorType, SizesAndNamesAreThoseOfGgml) {
  for (const ExpectedType& expected : kExpectedTypes) {
    const auto type = tensor_type_from_number(expected.number);
    ASSERT_TRUE(type.has_value()) << expected.number;
    EXPECT_EQ(static_cast<uint32_t>(*type), expected.number);
    EXPECT_STREQ(tensor_type_name(*type), expected.name);
    EXPECT_EQ(block_values(*type), expected.n_values) << expected.name;
    EXPECT_EQ(block_bytes(*type), expected.n_bytes) << expected.name;
    EXPECT_EQ(row_bytes(*type, 0), 0u);
    EXPECT_EQ(row_bytes(*type, 768), 768u / expected.n_values * expected.n_bytes) << expected.name;
    EXPECT_NE(std::string(supported_tensor_types()).find(expected.name), std::string::npos);
  }
}

TEST(TensorType, AllOtherNumbersAreUnsupported) {
  uint32_t n_supported = 0;
  for (uint32_t number = 0; number < 1000; ++number)
    n_supported += tensor_type_from_number(number).has_value();
  EXPECT_EQ(n_supported, std::size(kExpectedTypes));
  EXPECT_FALSE(tensor_type_from_number(4294967295u).has_value());
}

TEST(TensorType, NamesOfForeignTypes) {
  EXPECT_STREQ(ggml_type_name(10), "Q2_K");
  EXPECT_STREQ(ggml_type_name(29), "IQ1_M");
  EXPECT_STREQ(ggml_type_name(34), "TQ1_0");
  EXPECT_STREQ(ggml_type_name(39), "MXFP4");
  EXPECT_EQ(ggml_type_name(42), nullptr);
  EXPECT_EQ(ggml_type_name(4294967295u), nullptr);
}

}  // namespace
}  // namespace quire
