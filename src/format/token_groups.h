// token2, token4: keys and values alike coded by token, between the least and the largest value of a group of
// 64. This is what the quantized cache of Hugging Face transformers stores and what LogQuant measures as KIVI
// (arXiv 2503.19950, code default); kivi2 and kivi4 are what KIVI's paper says. For comparison: keys lie
// badly in it, as a few of their channels are far larger than the others.
//
// x^ = zero + scale code as in kivi.h, the group being 64 channels of one token, the last one of a row
// shorter.
//
// Page, keys and values alike, G = ceil(head_dim / 64):
//
//   scales f16 [G][64 tokens] | zeros f16 [G][64] | packs of codes (panel_codes.h)
//
// Size: 4 G + head_dim b / 8 bytes a row (head_dim rounded up as panel_codes.h says): 20 at b = 2 and 64
// dims. Error: at most scale / 2 a value, and what f16 takes off the ends of the range.
#pragma once

#include <stdint.h>

#include "format/code_format.h"
#include "format/code_parts.h"
#include "format/kivi.h"
#include "format/panel_codes.h"

namespace quire {

template <int bits>
struct TokenGroups {
  static_assert(bits == 2 || bits == 4);
  static constexpr double kBound = bits == 2 ? 0.21 : 0.009;
  static constexpr CodeInfo kInfo = {bits == 2 ? "token2" : "token4",
                                     bits,
                                     bits,
                                     kBound,
                                     kBound,
                                     false,
                                     "per-token groups of 64 (transformers, LogQuant arXiv 2503.19950)"};
  static constexpr CodebookSpec kCodebook = {CodebookKind::kNone, 0};
  static constexpr int kGroup = 64;
  using Panel = PanelCodes<bits>;

  static constexpr int groups(int head_dim) { return (head_dim + kGroup - 1) / kGroup; }
  static constexpr int zeros_offset(int head_dim) { return 2 * kPageRows * groups(head_dim); }
  static constexpr int codes_offset(int head_dim) { return 2 * zeros_offset(head_dim); }
  static constexpr int key_page_bytes(int head_dim) {
    return codes_offset(head_dim) + Panel::key_bytes(head_dim);
  }
  static constexpr int value_page_bytes(int head_dim) {
    return codes_offset(head_dim) + Panel::value_bytes(head_dim);
  }

  // Ranges to the page, codes [64][kMaxHeadDim] with zeros behind head_dim.
  QUIRE_INLINE void code_rows(const float* rows, int head_dim, uint8_t* codes, uint8_t* page) {
    for (int t = 0; t < kPageRows; ++t) {
      const float* x = rows + t * head_dim;
      uint8_t* to = codes + t * kMaxHeadDim;
      for (int g = 0; g < groups(head_dim); ++g) {
        const int start = g * kGroup;
        const int n = head_dim - start < kGroup ? head_dim - start : kGroup;
        const KiviRange range = kivi_range<bits>(x + start, n, 1);
        uint8_t* scale = page + 2 * (g * kPageRows + t);
        put_half(scale, range.scale);
        put_half(scale + zeros_offset(head_dim), range.zero);
        for (int i = 0; i < n; ++i) to[start + i] = (uint8_t)kivi_code<bits>(x[start + i], range);
      }
      for (int d = head_dim; d < kMaxHeadDim; ++d) to[d] = 0;
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

  QUIRE_INLINE float value_of(const uint8_t* page, int head_dim, int row, int d, int code) {
    const uint8_t* scale = page + 2 * (d / kGroup * kPageRows + row);
    return get_half(scale + zeros_offset(head_dim)) + get_half(scale) * (float)code;
  }
  QUIRE_INLINE void decode_key_row(const uint8_t* page, int head_dim, int row, const Codebook&, float* out) {
    for (int d = 0; d < head_dim; ++d) {
      out[d] =
          value_of(page, head_dim, row, d, Panel::get_key(page + codes_offset(head_dim), head_dim, row, d));
    }
  }
  QUIRE_INLINE void decode_value_row(const uint8_t* page, int head_dim, int row, const Codebook&,
                                     float* out) {
    for (int d = 0; d < head_dim; ++d) {
      out[d] = value_of(page, head_dim, row, d, Panel::get_value(page + codes_offset(head_dim), row, d));
    }
  }
};

}  // namespace quire
