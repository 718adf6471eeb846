// fp8 conversions against their definition in double precision, over all 256 numbers and the ties between
// them.
#include "base/fp8.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>

namespace quire {
namespace {

constexpr uint8_t kNan = 0x7f;
constexpr uint8_t kLargest = 0x7e;

// By the definition.
double value_of(uint8_t bits) {
  const int exponent = (bits >> 3) & 15;
  const int mantissa = bits & 7;
  const double sign = (bits & 0x80) != 0 ? -1.0 : 1.0;
  if ((bits & 0x7f) == kNan) return std::numeric_limits<double>::quiet_NaN();
  return sign * std::ldexp(mantissa / 8.0 + (exponent == 0 ? 0.0 : 1.0), (exponent == 0 ? 1 : exponent) - 7);
}

TEST(Fp8, EveryNumberDecodesToItsDefinitionAndEncodesToItself) {
  for (int bits = 0; bits < 256; ++bits) {
    const auto number = static_cast<uint8_t>(bits);
    const double wanted = value_of(number);
    const double got = fp8_to_f32(number);
    if (std::isnan(wanted)) {
      ASSERT_TRUE(std::isnan(got)) << bits;
    } else {
      ASSERT_EQ(got, wanted) << bits;
    }
    ASSERT_EQ(std::signbit(got), bits >= 128) << bits;
    ASSERT_EQ(f32_to_fp8(fp8_to_f32(number)), number) << bits;
  }
}

// Between neighbours their midpoint goes to the one with an even last bit, the floats beside it to the nearer
// one.
TEST(Fp8, RoundsToNearestTiesToEven) {
  for (uint8_t low = 0; low < kLargest; ++low) {
    const auto high = static_cast<uint8_t>(low + 1);
    const auto middle = static_cast<float>((value_of(low) + value_of(high)) / 2);
    const uint8_t even = low % 2 == 0 ? low : high;
    for (const uint8_t sign : {0x00, 0x80}) {
      const float s = sign == 0 ? 1.0f : -1.0f;
      ASSERT_EQ(f32_to_fp8(s * middle), even | sign) << int{low};
      ASSERT_EQ(f32_to_fp8(s * std::nextafterf(middle, 0.0f)), low | sign) << int{low};
      ASSERT_EQ(f32_to_fp8(s * std::nextafterf(middle, 2 * middle)), high | sign) << int{low};
    }
  }
}

TEST(Fp8, BeyondTheRangeIsTheLargestNumber) {
  const float most = std::numeric_limits<float>::max();
  for (const float x : {448.0f, 463.9f, 464.0f, 480.0f, 512.0f, 1e30f, most, 1.0f / 0.0f}) {
    EXPECT_EQ(f32_to_fp8(x), kLargest) << x;
    EXPECT_EQ(f32_to_fp8(-x), 0x80 | kLargest) << x;
  }
  EXPECT_EQ(f32_to_fp8(1e-40f), 0);
  EXPECT_EQ(f32_to_fp8(-1e-40f), 0x80);
  EXPECT_EQ(f32_to_fp8(std::numeric_limits<float>::quiet_NaN()), kNan);
  EXPECT_EQ(f32_to_fp8(bits_to_float(0xff800001u)), 0x80 | kNan);  // signalling
}

}  // namespace
}  // namespace quire
