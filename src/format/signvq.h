// signvq: a key as the signs of its values and their sizes in two bits; a value row in two bits.
//
// Self-Indexing KVCache (arXiv 2603.14224). Keys come in centred by the prompt's mean and divided by the
// prompt's largest size of each channel (the balance of frame.h), so that sizes lie in [0, 1]. The signs of
// four dims are at once a code word of the index: kernels look them up in 16 entries a group, made from the
// prompt's codebook (cache/prompt_statistics.h). In groups of 32 dims (the last one shorter):
//
//   key    x^ = sign (zero + scale code)      zero = min |x|, scale = (max |x| - min |x|) / 3, code 0..3
//   value  x^ = zero + scale code             the same of x
//
// scale and zero are f16; codes are found with these as stored, and are 0 where f16 makes the scale 0.
//
// Key page, D = ceil(head_dim / 8), G = ceil(head_dim / 32) (planes: code_parts.h):
//
//   0       sign plane [D][64]: byte (g, t), bit j = 1 where dim 8 g + j of token t is positive or zero
//   64 D    [64 tokens][G x (scale f16, zero f16) | upper plane [D] | lower plane [D]]
//
// of which the sign plane is the index, which may lie apart.
//
// Value page: [64 tokens][the same].
//
// Size: 3 D + 4 G bytes a key, 2 D + 4 G a value: 32 and 24 for 64 dims. Error: at most scale / 2 a value,
// and what f16 takes off the ends of the range.
#pragma once

#include <stdint.h>
#include <string.h>

#include "format/code_format.h"
#include "format/code_parts.h"
#include "format/group_codes.h"
#include "format/kivi.h"

namespace quire {

struct SignVq {
  static constexpr CodeInfo kInfo = {
      "signvq", 3, 2, 0.06, 0.19, false, "Self-Indexing KVCache, arXiv 2603.14224"};
  static constexpr CodebookSpec kCodebook = {CodebookKind::kNone, 0};

  static constexpr int groups(int head_dim) { return (head_dim + kGroupValues - 1) / kGroupValues; }
  static constexpr int row_bytes(int head_dim) { return 4 * groups(head_dim) + 2 * plane_bytes(head_dim); }
  static constexpr int index_page_bytes(int head_dim) { return kPageRows * plane_bytes(head_dim); }
  static constexpr int key_page_bytes(int head_dim) {
    return index_page_bytes(head_dim) + kPageRows * row_bytes(head_dim);
  }
  static constexpr int value_page_bytes(int head_dim) { return kPageRows * row_bytes(head_dim); }
  static constexpr int index_norms_offset(int) { return -1; }

  // Parameters and planes of one row.
  QUIRE_INLINE void encode_row(const float* x, int head_dim, uint8_t* bytes) {
    uint8_t codes[kCodeBufferBytes] = {0};
    for (int start = 0; start < head_dim; start += kGroupValues, bytes += 4) {
      const int n = group_size(head_dim, start);
      const KiviRange range = kivi_range<2>(x + start, n, 1);
      put_half(bytes, range.scale);
      put_half(bytes + 2, range.zero);
      for (int i = start; i < start + n; ++i) codes[i] = (uint8_t)kivi_code<2>(x[i], range);
    }
    put_plane(codes, head_dim, 1, bytes, 1);
    put_plane(codes, head_dim, 0, bytes + plane_bytes(head_dim), 1);
  }

  QUIRE_INLINE void decode_row(const uint8_t* bytes, int head_dim, float* out) {
    uint8_t codes[kCodeBufferBytes] = {0};
    const uint8_t* planes = bytes + 4 * groups(head_dim);
    add_plane(planes, head_dim, 1, 1, codes);
    add_plane(planes + plane_bytes(head_dim), head_dim, 1, 0, codes);
    for (int i = 0; i < head_dim; ++i) {
      const uint8_t* group = bytes + 4 * (i / kGroupValues);
      out[i] = get_half(group + 2) + get_half(group) * (float)codes[i];
    }
  }

  QUIRE_INLINE void encode_keys(const float* rows, int head_dim, const Codebook&, uint8_t* index,
                                uint8_t* sizes_of_rows) {
    for (int t = 0; t < kPageRows; ++t) {
      float sizes[kMaxHeadDim];
      uint8_t signs[kCodeBufferBytes] = {0};
      for (int i = 0; i < head_dim; ++i) {
        const float x = rows[t * head_dim + i];
        sizes[i] = __builtin_fabsf(x);
        signs[i] = x < 0.0f ? 0 : 1;
      }
      put_plane(signs, head_dim, 0, index + t, kPageRows);
      encode_row(sizes, head_dim, sizes_of_rows + t * row_bytes(head_dim));
    }
  }
  QUIRE_INLINE void encode_keys(const float* rows, int head_dim, const Codebook& book, uint8_t* page) {
    encode_keys(rows, head_dim, book, page, page + index_page_bytes(head_dim));
  }
  QUIRE_INLINE void encode_values(const float* rows, int head_dim, const Codebook&, uint8_t* page) {
    for (int t = 0; t < kPageRows; ++t) {
      encode_row(rows + t * head_dim, head_dim, page + t * row_bytes(head_dim));
    }
  }
  QUIRE_INLINE void decode_key_row(KeyPage page, int head_dim, int row, const Codebook&, float* out) {
    decode_row(page.rows + row * row_bytes(head_dim), head_dim, out);
    for (int i = 0; i < head_dim; ++i) {
      const int sign = (page.index[(i / 8) * kPageRows + row] >> (i % 8)) & 1;
      out[i] = sign ? out[i] : -out[i];
    }
  }
  QUIRE_INLINE void decode_key_row(const uint8_t* page, int head_dim, int row, const Codebook& book,
                                   float* out) {
    decode_key_row({page, page + index_page_bytes(head_dim)}, head_dim, row, book, out);
  }
  QUIRE_INLINE void decode_value_row(const uint8_t* page, int head_dim, int row, const Codebook&,
                                     float* out) {
    decode_row(page + row * row_bytes(head_dim), head_dim, out);
  }
};

}  // namespace quire
