// Parts that the coded formats share: sums of fixed order, guards of scales, and bit planes.
//
// A plane is one bit of every value of a row, 8 values a byte, the first value lowest:
//
//   byte g, bit j = value 8 g + j        bytes a row: D = ceil(head_dim / 8), bits past head_dim are 0
//
// Bytes are loaded eight at a time as a little-endian word, as on every machine we run on.
#pragma once

#include <stdint.h>
#include <string.h>

#include "base/half.h"
#include "format/code_format.h"

namespace quire {

constexpr float kLargestHalf = 65504.0f;
// Code buffers are read eight at a time.
constexpr int kCodeBufferBytes = kMaxHeadDim + 8;

QUIRE_INLINE constexpr int plane_bytes(int head_dim) { return (head_dim + 7) / 8; }

// NaN becomes low.
QUIRE_INLINE float clamp_to(float x, float low, float high) {
  const float at_least = x > low ? x : low;
  return at_least < high ? at_least : high;
}

// A scale as f16 that is never an infinity or a NaN.
QUIRE_INLINE uint16_t saturated_half(float x) { return f32_to_f16(clamp_to(x, -kLargestHalf, kLargestHalf)); }

QUIRE_INLINE void put_half(uint8_t* at, uint16_t half) { memcpy(at, &half, sizeof half); }

QUIRE_INLINE float get_half(const uint8_t* at) {
  uint16_t half;
  memcpy(&half, at, sizeof half);
  return f16_to_f32(half);
}

// Value i goes to lane i mod 16; then lanes l and l + 8, l and l + 4, ...
QUIRE_INLINE float dot_fixed(const float* x, const float* y, int n) {
  float lanes[16] = {0};
  int i = 0;
  for (; i + 16 <= n; i += 16) {
    for (int l = 0; l < 16; ++l) lanes[l] += x[i + l] * y[i + l];
  }
  for (int l = 0; i + l < n; ++l) lanes[l] += x[i + l] * y[i + l];
  for (int half = 8; half > 0; half /= 2) {
    for (int l = 0; l < half; ++l) lanes[l] += lanes[l + half];
  }
  return lanes[0];
}

// A row times the power of two that brings its largest value near 1, so that no square overflows or
// vanishes: x = scaled * unit, norm = |scaled|.
struct ScaledRow {
  float norm;
  float unit;
};

QUIRE_INLINE ScaledRow scale_row(const float* x, int n, float* scaled) {
  uint32_t largest = 0;  // bits of |x| are ordered as |x| is
  for (int i = 0; i < n; ++i) {
    const uint32_t magnitude = float_to_bits(x[i]) & 0x7fffffffu;
    largest = magnitude > largest ? magnitude : largest;
  }
  uint32_t exponent = largest >> 23;  // clamped so that both powers are normal numbers
  exponent = exponent < 1 ? 1 : exponent > 253 ? 253 : exponent;
  const float power = bits_to_float((254 - exponent) << 23);
  for (int i = 0; i < n; ++i) scaled[i] = x[i] * power;
  return {__builtin_sqrtf(dot_fixed(scaled, scaled, n)), bits_to_float(exponent << 23)};
}

QUIRE_INLINE uint64_t load_word(const uint8_t* p) {
  uint64_t word;
  memcpy(&word, p, sizeof word);
  return word;
}

// Bit `bit` of codes[0..n) becomes a plane; byte g goes to out[g * stride]. Codes past n must be 0 up to a
// multiple of eight.
QUIRE_INLINE void put_plane(const uint8_t* codes, int n, int bit, uint8_t* out, int stride) {
  for (int g = 0; g < plane_bytes(n); ++g) {
    const uint64_t bits = (load_word(codes + 8 * g) >> bit) & 0x0101010101010101ull;
    // The product puts bit 8 j of `bits` at 56 + j: 8 j + 7 (8 - j), and nothing else reaches the top byte.
    out[g * stride] = (uint8_t)((bits * 0x0102040810204080ull) >> 56);
  }
}

// codes |= plane << bit, for eight codes a byte: codes needs room up to a multiple of eight.
QUIRE_INLINE void add_plane(const uint8_t* plane, int n, int stride, int bit, uint8_t* codes) {
  for (int g = 0; g < plane_bytes(n); ++g) {
    const uint64_t copies = (uint64_t)plane[g * stride] * 0x0101010101010101ull;
    const uint64_t marked = copies & 0x8040201008040201ull;  // byte j keeps bit j alone
    const uint64_t ones = ((marked + 0x7f7f7f7f7f7f7f7full) >> 7) & 0x0101010101010101ull;
    const uint64_t word = load_word(codes + 8 * g) | (ones << bit);
    memcpy(codes + 8 * g, &word, sizeof word);
  }
}

}  // namespace quire
