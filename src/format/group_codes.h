// q8 and q4: groups of 32 values of a row with one f16 scale each, the codes of llama.cpp's q8_0 and q4_0.
//
//   q8   x^ = scale (code - 128), scale = max|x| / 127
//   q4   x^ = scale (code - 8),   scale = m / -8, m the value of largest size (the first of them), sign kept
//
// Page, keys and values alike, G = ceil(head_dim / 32), the last group shorter where head_dim is no multiple:
//
//   scales f16 [G][64 tokens] | packs of codes (panel_codes.h), of 8 or 4 bits
//
// So scales of 16 tokens and codes of 16 tokens (keys) or dims (values) are whole registers; rows of ggml
// blocks would have to be transposed at every reading. Codes and scales are ggml's but for halves, which its
// portable code rounds away from zero and we, like its vector code, to even; for scales beyond f16, which
// saturate at 65504; and for a scale that f16 rounds to zero, which makes a group of zeros.
//
// Size: head_dim (q8) or head_dim / 2 (q4) + 2 G bytes a row, head_dim rounded up as panel_codes.h says; 34
// and 18 for 32 values. Error: at most scale / 2 a value (q4: one scale at the end away from m), and what f16
// takes off the scale.
#pragma once

#include <stdint.h>

#include "format/code_format.h"
#include "format/code_parts.h"
#include "format/panel_codes.h"

namespace quire {

constexpr int kGroupValues = 32;

QUIRE_INLINE constexpr int group_size(int head_dim, int start) {
  return head_dim - start < kGroupValues ? head_dim - start : kGroupValues;
}

// 1 / scale, or 0 where f16 makes the scale 0.
QUIRE_INLINE float inverse_scale(float scale) {
  return (f32_to_f16(scale) & 0x7fffu) == 0 ? 0.0f : 1.0f / scale;
}

// The first value of the largest size.
QUIRE_INLINE float largest_value(const float* x, int n) {
  float size = 0.0f;
  float value = 0.0f;
  for (int i = 0; i < n; ++i) {
    if (__builtin_fabsf(x[i]) > size) {
      size = __builtin_fabsf(x[i]);
      value = x[i];
    }
  }
  return value;
}

QUIRE_INLINE constexpr int group_count(int head_dim) { return (head_dim + kGroupValues - 1) / kGroupValues; }

// How a group of n values is coded; returns the scale.
struct Q8Group {
  static constexpr int kBits = 8;
  static constexpr int kZero = 128;  // the code of 0

  QUIRE_INLINE float encode(const float* x, int n, uint8_t* codes) {
    const float scale = __builtin_fabsf(largest_value(x, n)) / 127.0f;
    const float inverse = inverse_scale(scale);
    for (int i = 0; i < n; ++i) {
      codes[i] = (uint8_t)(int)(clamp_to(__builtin_rintf(x[i] * inverse), -127.0f, 127.0f) + 128.0f);
    }
    return scale;
  }
};

struct Q4Group {
  static constexpr int kBits = 4;
  static constexpr int kZero = 8;

  // Truncation of x / scale + 8.5, as ggml rounds.
  QUIRE_INLINE float encode(const float* x, int n, uint8_t* codes) {
    const float scale = largest_value(x, n) / -8.0f;
    const float inverse = inverse_scale(scale);
    for (int i = 0; i < n; ++i) codes[i] = (uint8_t)(int)clamp_to(x[i] * inverse + 8.5f, 0.0f, 15.0f);
    return scale;
  }
};

template <class Group>
struct GroupPages {
  using Panel = PanelCodes<Group::kBits>;
  static constexpr int kZero = Group::kZero;

  static constexpr int codes_offset(int head_dim) { return 2 * kPageRows * group_count(head_dim); }
  static constexpr int key_page_bytes(int head_dim) {
    return codes_offset(head_dim) + Panel::key_bytes(head_dim);
  }
  static constexpr int value_page_bytes(int head_dim) {
    return codes_offset(head_dim) + Panel::value_bytes(head_dim);
  }

  // Scales to the page, codes [64][kMaxHeadDim] with zeros behind head_dim.
  QUIRE_INLINE void code_rows(const float* rows, int head_dim, uint8_t* codes, uint8_t* page) {
    for (int t = 0; t < kPageRows; ++t) {
      uint8_t* row = codes + t * kMaxHeadDim;
      for (int g = 0; g < group_count(head_dim); ++g) {
        const int start = g * kGroupValues;
        const float scale =
            Group::encode(rows + t * head_dim + start, group_size(head_dim, start), row + start);
        put_half(page + 2 * (g * kPageRows + t), saturated_half(scale));
      }
      for (int d = head_dim; d < kMaxHeadDim; ++d) row[d] = 0;
    }
  }

  QUIRE_INLINE void encode_keys(const float* rows, int head_dim, const Codebook&, uint8_t* page) {
    uint8_t codes[kPageRows * kMaxHeadDim];
    code_rows(rows, head_dim, codes, page);
    Panel::put_keys(codes, head_dim, page + codes_offset(head_dim));
  }
  QUIRE_INLINE void encode_values(const float* rows, int head_dim, const Codebook&, uint8_t* page) {
    uint8_t codes[kPageRows * kMaxHeadDim];
    code_rows(rows, head_dim, codes, page);
    Panel::put_values(codes, head_dim, page + codes_offset(head_dim));
  }

  QUIRE_INLINE float scale_of(const uint8_t* page, int row, int d) {
    return get_half(page + 2 * (d / kGroupValues * kPageRows + row));
  }
  QUIRE_INLINE void decode_key_row(const uint8_t* page, int head_dim, int row, const Codebook&, float* out) {
    for (int d = 0; d < head_dim; ++d) {
      const int code = Panel::get_key(page + codes_offset(head_dim), head_dim, row, d);
      out[d] = scale_of(page, row, d) * (float)(code - kZero);
    }
  }
  QUIRE_INLINE void decode_value_row(const uint8_t* page, int head_dim, int row, const Codebook&,
                                     float* out) {
    for (int d = 0; d < head_dim; ++d) {
      const int code = Panel::get_value(page + codes_offset(head_dim), row, d);
      out[d] = scale_of(page, row, d) * (float)(code - kZero);
    }
  }
};

struct Q8 : GroupPages<Q8Group> {
  static constexpr CodeInfo kInfo = {"q8", 8, 8, 3e-5, 3e-5, false, "ggml q8_0 (llama.cpp)"};
  static constexpr CodebookSpec kCodebook = {CodebookKind::kNone, 0};
};

struct Q4 : GroupPages<Q4Group> {
  static constexpr CodeInfo kInfo = {"q4", 4, 4, 0.0077, 0.0077, false, "ggml q4_0 (llama.cpp)"};
  static constexpr CodebookSpec kCodebook = {CodebookKind::kNone, 0};
};

}  // namespace quire
