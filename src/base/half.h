// IEEE half precision (f16) and bfloat16 (bf16) in portable code: the scalar truth that the vector
// conversions must equal. Kernels compiled per instruction set include this too, hence always_inline:
// no symbol of it may leave an object file.
#pragma once

#include <stdint.h>
#include <string.h>

#ifndef QUIRE_INLINE  // kernels/cuda/device/host_device.cuh says more
#define QUIRE_INLINE static inline __attribute__((always_inline))
#endif

namespace quire {

QUIRE_INLINE float bits_to_float(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

QUIRE_INLINE uint32_t float_to_bits(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

// Every f16, subnormals, infinities and NaN included, is exactly representable in f32.
QUIRE_INLINE float f16_to_f32(uint16_t half) {
  const uint32_t sign = (uint32_t)(half & 0x8000u) << 16;
  const uint32_t exponent = (half >> 10) & 0x1fu;
  const uint32_t mantissa = half & 0x3ffu;
  if (exponent == 0) {  // zero or subnormal: mantissa * 2^-24
    const float magnitude = (float)mantissa * 0x1p-24f;
    return bits_to_float(float_to_bits(magnitude) | sign);
  }
  if (exponent == 31) {
    // The hardware sets the quiet bit of a NaN when it converts; so do we.
    return bits_to_float(sign | 0x7f800000u | (mantissa << 13) | (mantissa ? 0x400000u : 0u));
  }
  return bits_to_float(sign | ((exponent + 112) << 23) | (mantissa << 13));
}

// Rounds to nearest, ties to even, like vcvtps2ph; overflow goes to infinity.
QUIRE_INLINE uint16_t f32_to_f16(float value) {
  const uint32_t bits = float_to_bits(value);
  const uint16_t sign = (uint16_t)((bits >> 16) & 0x8000u);
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) {  // NaN: quiet, top of the payload kept
    return (uint16_t)(sign | 0x7e00u | ((magnitude >> 13) & 0x1ffu));
  }
  if (magnitude >= 0x477ff000u) return (uint16_t)(sign | 0x7c00u);  // 65520 and above round to infinity
  if (magnitude < 0x38800000u) {
    // Below 2^-14: adding 0.5 aligns the f16 subnormal's last bit with the f32's, so the FPU rounds for us.
    const float aligned = bits_to_float(magnitude) + 0.5f;
    return (uint16_t)(sign | (float_to_bits(aligned) - 0x3f000000u));
  }
  const uint32_t odd = (magnitude >> 13) & 1u;
  const uint32_t rounded = magnitude + 0xfffu + odd;
  return (uint16_t)(sign | ((rounded - 0x38000000u) >> 13));
}

QUIRE_INLINE float bf16_to_f32(uint16_t value) { return bits_to_float((uint32_t)value << 16); }

// Rounds to nearest, ties to even; a NaN stays a (quiet) NaN.
QUIRE_INLINE uint16_t f32_to_bf16(float value) {
  const uint32_t bits = float_to_bits(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return (uint16_t)((bits >> 16) | 0x40u);
  return (uint16_t)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

}  // namespace quire
