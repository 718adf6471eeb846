// kivi2, kivi4: keys coded by channel, values by token, between the least and the largest value of a group.
//
// KIVI (ICML 2024, arXiv 2402.02750), groups of 32: a channel of the keys of 32 tokens, so a page has two
// groups of each channel; 32 channels of the value of one token, the last group of a row shorter where
// head_dim is no multiple. x^ = zero + scale code, zero = min, scale = (max - min) / (2^b - 1), both f16;
// code = round((x - zero) / scale), with zero and scale as stored (the paper divides by the unrounded ones,
// which costs up to half an f16 step of a biased channel), and scale 0 where f16 cannot tell max from min.
// Which rows stay exact (the paper's residual of 128) is not the format's business.
//
// Key page:   [2 groups][scales f16 [head_dim] | zeros f16 [head_dim]] | packs of codes (panel_codes.h)
// Value page: scales f16 [G][64 tokens] | zeros f16 [G][64] | packs of codes,  G = ceil(head_dim / 32)
//
// Size: (head_dim + head_dim b) / 8 bytes a key, 4 G + head_dim b / 8 a value: 24 each at b = 2 and 64 dims
// (head_dim of the codes rounded up as panel_codes.h says).
// Error: at most scale / 2 a value, and what f16 takes off the ends of the range.
#pragma once

#include <stdint.h>
#include <string.h>

#include "format/code_format.h"
#include "format/code_parts.h"
#include "format/panel_codes.h"

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
  using Panel = PanelCodes<bits>;

  static constexpr int groups(int head_dim) { return (head_dim + kGroup - 1) / kGroup; }
  static constexpr int key_codes_offset(int head_dim) { return kPageRows / kGroup * 4 * head_dim; }
  static constexpr int value_zeros_offset(int head_dim) { return 2 * kPageRows * groups(head_dim); }
  static constexpr int value_codes_offset(int head_dim) { return 2 * value_zeros_offset(head_dim); }
  static constexpr int key_page_bytes(int head_dim) {
    return key_codes_offset(head_dim) + Panel::key_bytes(head_dim);
  }
  static constexpr int value_page_bytes(int head_dim) {
    return value_codes_offset(head_dim) + Panel::value_bytes(head_dim);
  }

  QUIRE_INLINE void encode_keys(const float* rows, int head_dim, const Codebook&, uint8_t* page) {
    uint8_t codes[kPageRows * kMaxHeadDim];
    memset(codes, 0, sizeof codes);
    for (int t = 0; t < kPageRows; t += kGroup) {
      uint8_t* scales = page + t / kGroup * 4 * head_dim;
      for (int j = 0; j < head_dim; ++j) {
        const float* channel = rows + t * head_dim + j;
        const KiviRange range = kivi_range<bits>(channel, kGroup, head_dim);
        put_half(scales + 2 * j, range.scale);
        put_half(scales + 2 * (head_dim + j), range.zero);
        for (int i = 0; i < kGroup; ++i) {
          codes[(t + i) * kMaxHeadDim + j] = (uint8_t)kivi_code<bits>(channel[i * head_dim], range);
        }
      }
    }
    Panel::put_keys(codes, head_dim, page + key_codes_offset(head_dim));
  }

  QUIRE_INLINE void encode_values(const float* rows, int head_dim, const Codebook&, uint8_t* page) {
    uint8_t codes[kPageRows * kMaxHeadDim];
    memset(codes, 0, sizeof codes);
    for (int t = 0; t < kPageRows; ++t) {
      const float* x = rows + t * head_dim;
      for (int g = 0; g < groups(head_dim); ++g) {
        const int start = g * kGroup;
        const int n = head_dim - start < kGroup ? head_dim - start : kGroup;
        const KiviRange range = kivi_range<bits>(x + start, n, 1);
        uint8_t* scale = page + 2 * (g * kPageRows + t);
        put_half(scale, range.scale);
        put_half(scale + value_zeros_offset(head_dim), range.zero);
        uint8_t* to = codes + t * kMaxHeadDim + start;
        for (int i = 0; i < n; ++i) to[i] = (uint8_t)kivi_code<bits>(x[start + i], range);
      }
    }
    Panel::put_values(codes, head_dim, page + value_codes_offset(head_dim));
  }

  QUIRE_INLINE void decode_key_row(const uint8_t* page, int head_dim, int row, const Codebook&, float* out) {
    const uint8_t* scales = page + row / kGroup * 4 * head_dim;
    const uint8_t* zeros = scales + 2 * head_dim;
    for (int j = 0; j < head_dim; ++j) {
      const int code = Panel::get_key(page + key_codes_offset(head_dim), head_dim, row, j);
      out[j] = get_half(zeros + 2 * j) + get_half(scales + 2 * j) * (float)code;
    }
  }

  QUIRE_INLINE void decode_value_row(const uint8_t* page, int head_dim, int row, const Codebook&,
                                     float* out) {
    for (int j = 0; j < head_dim; ++j) {
      const uint8_t* scale = page + 2 * (j / kGroup * kPageRows + row);
      const int code = Panel::get_value(page + value_codes_offset(head_dim), row, j);
      out[j] = get_half(scale + value_zeros_offset(head_dim)) + get_half(scale) * (float)code;
    }
  }
};

}  // namespace quire
