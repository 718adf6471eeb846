// Numbers of 8 bits, e4m3 of the OCP 8-bit floating point specification (fp8), in portable code: the scalar
// truth that the vector conversions must equal.
//
//   s eeee mmm    (-1)^s 2^(e - 7) (1 + m / 8);  e = 0: (-1)^s 2^-6 m / 8;  e = 15 and m = 7: NaN
//
// There is no infinity: the largest number is 448, the smallest above zero 2^-9.
#pragma once

#include "base/half.h"

namespace quire {

QUIRE_INLINE float fp8_to_f32(uint8_t value) {
  const uint32_t sign = (uint32_t)(value & 0x80u) << 24;
  const uint32_t magnitude = value & 0x7fu;
  if (magnitude == 0x7fu) return bits_to_float(sign | 0x7fc00000u);
  if (magnitude < 8) return bits_to_float(float_to_bits((float)magnitude * 0x1p-9f) | sign);
  return bits_to_float(sign | ((magnitude << 20) + (120u << 23)));
}

// Rounds to nearest, ties to even; what lies beyond the largest number becomes that, a NaN stays one.
QUIRE_INLINE uint8_t f32_to_fp8(float value) {
  const uint32_t bits = float_to_bits(value);
  const uint32_t sign = (bits >> 24) & 0x80u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return (uint8_t)(sign | 0x7fu);
  if (magnitude >= 0x43e00000u) return (uint8_t)(sign | 0x7eu);  // 448 and above
  if (magnitude < 0x3c800000u) {
    // Below 2^-6: the last bit of a float near 2^14 is 2^-9, so the FPU rounds for us.
    const float aligned = bits_to_float(magnitude) + 0x1p14f;
    return (uint8_t)(sign | (float_to_bits(aligned) - 0x46800000u));
  }
  const uint32_t odd = (magnitude >> 20) & 1u;
  return (uint8_t)(sign | ((magnitude + 0x7ffffu + odd - (120u << 23)) >> 20));
}

}  // namespace quire
