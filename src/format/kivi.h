// kivi2, kivi4: keys coded by channel, values by token, between the least and the largest value of a group.
//
// KIVI (ICML 2024, arXiv 2402.02750), groups of 32: a channel of the keys of 32 tokens, so a page has two
// groups of each channel; 32 channels of the value of one token, the last group of a row shorter where
// head_dim is no multiple. x^ = zero + scale code, zero = min, scale = (max - min) / (2^b - 1), both f16;
// code = round((x - zero) / scale), with zero and scale as stored (the paper divides by the unrounded ones,
// which costs up to half an f16 step of a biased channel), and scale 0 where f16 cannot tell max from min.
// Which rows stay exact (the paper's residual of 128) is not the format's business.
//
// Key page:   [2 groups][scales f16 [head_dim] | zeros f16 [head_dim]] | codes [64 tokens][B]
// Value page: [64 tokens][scale f16, zero f16 of each group | codes [B]]
//
//   codes of a row: value j in bits (j b) mod 8 ... of byte (j b) / 8, B = ceil(head_dim b / 8)
//
// Size: head_dim / 8 + B bytes a key, 4 ceil(head_dim / 32) + B a value: 24 each at b = 2 and 64 dims.
// Error: at most scale / 2 a value, and what f16 takes off the ends of the range.
#pragma once

#include <stdint.h>
#include <string.h>

#include "format/code_format.h"
#include "format/code_parts.h"

namespace quire {

// The range of a group as stored, and how codes are found.
struct KiviRange {
  uint16_t scale;
  uint16_t zero;
  float zero_value;
  float inverse;  // 1 / scale; 0 where the scale is
};

// Values at x[0], x[stride], ...
template <int bits>
QUIRE_INLINE KiviRange kivi_range(const float* x, int n, int stride) {
  float least = x[0];
  float most = x[0];
  for (int i = 1; i < n; ++i) {
    const float value = x[i * stride];
    least = value < least ? value : least;
    most = value > most ? value : most;
  }
  KiviRange range;
  range.zero = saturated_half(least);
  range.zero_value = f16_to_f32(range.zero);
  range.scale = saturated_half((most - least) / (float)((1 << bits) - 1));
  const float scale = f16_to_f32(range.scale);
  range.inverse = scale > 0.0f ? 1.0f / scale : 0.0f;
  return range;
}

template <int bits>
QUIRE_INLINE int kivi_code(float x, const KiviRange& range) {
  const float code = __builtin_rintf((x - range.zero_value) * range.inverse);
  return (int)clamp_to(code, 0.0f, (float)((1 << bits) - 1));
}

template <int bits>
struct Kivi {
  static_assert(bits == 2 || bits == 4);
  static constexpr double kBound = bits == 2 ? 0.162 : 0.0065;
  static constexpr CodeInfo kInfo = {bits == 2 ? "kivi2" : "kivi4",         bits, bits, kBound, kBound, false,
                                     "KIVI, arXiv 2402.02750, groups of 32"};
  static constexpr CodebookSpec kCodebook = {CodebookKind::kNone, 0};
  static constexpr int kGroup = 32;
  static constexpr int kMask = (1 << bits) - 1;

  QUIRE_INLINE constexpr int codes_bytes(int head_dim) { return (head_dim * bits + 7) / 8; }
  QUIRE_INLINE constexpr int key_codes_offset(int head_dim) { return kPageRows / kGroup * 4 * head_dim; }
  QUIRE_INLINE constexpr int key_page_bytes(int head_dim) {
    return key_codes_offset(head_dim) + kPageRows * codes_bytes(head_dim);
  }
  QUIRE_INLINE constexpr int value_ranges_bytes(int head_dim) { return (head_dim + kGroup - 1) / kGroup * 4; }
  QUIRE_INLINE constexpr int value_row_bytes(int head_dim) {
    return value_ranges_bytes(head_dim) + codes_bytes(head_dim);
  }
  QUIRE_INLINE constexpr int value_page_bytes(int head_dim) { return kPageRows * value_row_bytes(head_dim); }

  QUIRE_INLINE void encode_keys(const float* rows, int head_dim, const Codebook&, uint8_t* page) {
    uint8_t* codes = page + key_codes_offset(head_dim);
    memset(codes, 0, (size_t)(kPageRows * codes_bytes(head_dim)));
    for (int t = 0; t < kPageRows; t += kGroup) {
      uint8_t* scales = page + t / kGroup * 4 * head_dim;
      for (int j = 0; j < head_dim; ++j) {
        const float* channel = rows + t * head_dim + j;
        const KiviRange range = kivi_range<bits>(channel, kGroup, head_dim);
        put_half(scales + 2 * j, range.scale);
        put_half(scales + 2 * (head_dim + j), range.zero);
        for (int i = 0; i < kGroup; ++i) {
          put_code(codes + (t + i) * codes_bytes(head_dim), j, kivi_code<bits>(channel[i * head_dim], range));
        }
      }
    }
  }

  QUIRE_INLINE void encode_values(const float* rows, int head_dim, const Codebook&, uint8_t* page) {
    memset(page, 0, (size_t)value_page_bytes(head_dim));
    for (int t = 0; t < kPageRows; ++t) {
      const float* x = rows + t * head_dim;
      uint8_t* ranges = page + t * value_row_bytes(head_dim);
      uint8_t* codes = ranges + value_ranges_bytes(head_dim);
      for (int start = 0; start < head_dim; start += kGroup) {
        const int n = head_dim - start < kGroup ? head_dim - start : kGroup;
        const KiviRange range = kivi_range<bits>(x + start, n, 1);
        put_half(ranges + start / kGroup * 4, range.scale);
        put_half(ranges + start / kGroup * 4 + 2, range.zero);
        for (int i = 0; i < n; ++i) put_code(codes, start + i, kivi_code<bits>(x[start + i], range));
      }
    }
  }

  QUIRE_INLINE void decode_key_row(const uint8_t* page, int head_dim, int row, const Codebook&, float* out) {
    const uint8_t* scales = page + row / kGroup * 4 * head_dim;
    const uint8_t* zeros = scales + 2 * head_dim;
    const uint8_t* codes = page + key_codes_offset(head_dim) + row * codes_bytes(head_dim);
    for (int j = 0; j < head_dim; ++j) {
      out[j] = get_half(zeros + 2 * j) + get_half(scales + 2 * j) * (float)get_code(codes, j);
    }
  }

  QUIRE_INLINE void decode_value_row(const uint8_t* page, int head_dim, int row, const Codebook&,
                                     float* out) {
    const uint8_t* ranges = page + row * value_row_bytes(head_dim);
    const uint8_t* codes = ranges + value_ranges_bytes(head_dim);
    for (int j = 0; j < head_dim; ++j) {
      const uint8_t* range = ranges + j / kGroup * 4;
      out[j] = get_half(range + 2) + get_half(range) * (float)get_code(codes, j);
    }
  }

 private:
  QUIRE_INLINE void put_code(uint8_t* codes, int j, int code) {
    codes[j * bits / 8] = (uint8_t)(codes[j * bits / 8] | (code << (j * bits % 8)));
  }
  QUIRE_INLINE int get_code(const uint8_t* codes, int j) {
    return (codes[j * bits / 8] >> (j * bits % 8)) & kMask;
  }
};

}  // namespace quire
