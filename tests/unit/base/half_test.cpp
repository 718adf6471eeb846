// f16 and bf16 conversions against their definition in double precision, over all 65536 numbers and the ties
// between them.
#include "base/half.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>

namespace quire {
namespace {

// The value of a half with `exponent_bits` of exponent, by the definition.
double value_of(uint16_t bits, int exponent_bits) {
  const int mantissa_bits = 15 - exponent_bits;
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = (bits >> mantissa_bits) & ((1 << exponent_bits) - 1);
  const int mantissa = bits & ((1 << mantissa_bits) - 1);
  const double sign = (bits & 0x8000) != 0 ? -1.0 : 1.0;
  if (exponent == (1 << exponent_bits) - 1) {
    return mantissa == 0 ? sign * std::numeric_limits<double>::infinity()
                         : std::numeric_limits<double>::quiet_NaN();
  }
  const double fraction = std::ldexp(mantissa, -mantissa_bits) + (exponent == 0 ? 0.0 : 1.0);
  return sign * std::ldexp(fraction, (exponent == 0 ? 1 : exponent) - bias);
}

struct Kind {
  int exponent_bits;
  float (*decode)(uint16_t);
  uint16_t (*encode)(float);
};

const Kind kKinds[] = {
    {5, [](uint16_t bits) { return f16_to_f32(bits); }, [](float x) { return f32_to_f16(x); }},
    {8, [](uint16_t bits) { return bf16_to_f32(bits); }, [](float x) { return f32_to_bf16(x); }},
};

TEST(Half, EveryNumberDecodesToItsDefinition) {
  for (const Kind& kind : kKinds) {
    for (uint32_t bits = 0; bits < 65536; ++bits) {
      const auto half = static_cast<uint16_t>(bits);
      const double wanted = value_of(half, kind.exponent_bits);
      const double got = kind.decode(half);
      if (std::isnan(wanted)) {
        ASSERT_TRUE(std::isnan(got)) << bits;
      } else {
        ASSERT_EQ(got, wanted) << bits;
        ASSERT_EQ(std::signbit(got), std::signbit(wanted)) << bits;
      }
    }
  }
}

TEST(Half, EncodingADecodedNumberGivesItBack) {
  for (const Kind& kind : kKinds) {
    for (uint32_t bits = 0; bits < 65536; ++bits) {
      const auto half = static_cast<uint16_t>(bits);
      if (std::isnan(value_of(half, kind.exponent_bits))) {
        ASSERT_TRUE(std::isnan(kind.decode(kind.encode(kind.decode(half))))) << bits;
      } else {
        ASSERT_EQ(kind.encode(kind.decode(half)), half) << bits;
      }
    }
  }
}

// Between neighbours a < b: their midpoint goes to the one with an even last bit, the floats beside it to the
// nearer one. The step above the largest finite number leads to infinity.
TEST(Half, RoundsToNearestTiesToEven) {
  for (const Kind& kind : kKinds) {
    const uint16_t infinity = kind.exponent_bits == 5 ? 0x7c00 : 0x7f80;
    for (uint16_t low = 0; low < infinity; ++low) {
      const auto high = static_cast<uint16_t>(low + 1);
      const double step =
          value_of(low, kind.exponent_bits) - value_of(low == 0 ? 0 : low - 1, kind.exponent_bits);
      const double a = value_of(low, kind.exponent_bits);
      const double b = high < infinity ? value_of(high, kind.exponent_bits) : a + step;
      const auto middle = static_cast<float>((a + b) / 2);
      ASSERT_EQ(static_cast<double>(middle), (a + b) / 2) << low;
      const uint16_t even = low % 2 == 0 ? low : high;
      for (const uint16_t sign : {0x0000, 0x8000}) {
        const float s = sign == 0 ? 1.0f : -1.0f;
        ASSERT_EQ(kind.encode(s * middle), even | sign) << low;
        ASSERT_EQ(kind.encode(s * std::nextafterf(middle, 0.0f)), low | sign) << low;
        ASSERT_EQ(kind.encode(s * std::nextafterf(middle, 2 * middle)), high | sign) << low;
      }
    }
  }
}

TEST(Half, BeyondTheRangeIsInfinity) {
  for (const Kind& kind : kKinds) {
    const float infinity = std::numeric_limits<float>::infinity();
    for (const float x : {infinity, std::numeric_limits<float>::max()}) {
      EXPECT_EQ(kind.decode(kind.encode(x)), infinity);
      EXPECT_EQ(kind.decode(kind.encode(-x)), -infinity);
    }
    EXPECT_TRUE(std::isnan(kind.decode(kind.encode(std::numeric_limits<float>::quiet_NaN()))));
    EXPECT_TRUE(std::isnan(kind.decode(kind.encode(bits_to_float(0x7f800001)))));  // signalling
  }
}

}  // namespace
}  // namespace quire
