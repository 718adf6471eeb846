// polar4, polar4r: pairs of a rotated row's coordinates as a length of 3 bits and an angle of 5.
//
// After PolarQuant (Wu et al., arXiv 2502.00527): pairs (j, j + head_dim / 2) as RoPE has them, one byte
// each. Differs: rows come rotated (frame.h), lengths are Lloyd-Max codes of their density (lloyd_max.h) over
// the row's norm instead of ranges of groups, the norm is corrected as in turbo.h, and the angle takes two
// bits more than the length (4 + 4 bits have 1.5 times the error). Angles fall in 32 equal parts of the
// circle, found by comparison with tangents, since atan2 differs between libraries. polar4r adds what
// Monarch's text describes: the sign of each value's error, times the mean size of the row's errors.
//
// Page, keys and values alike but for the order of panel_codes.h, h = floor(head_dim / 2):
//
//   norms f16 [64] | polar4r: mean |error| f16 [64] | odd head_dim: last coordinate int8 [64]
//     | packs of 8 bits: pair codes of h "dims" | polar4r: packs of 1 bit: signs of head_dim dims
//
//   pair code  7 6 5 4 3 2 1 0
//              x y a a a l l l     x, y: 1 where the coordinate is positive or zero;
//                                  a: part of the quarter circle, from the axis of |x|, centre (2 a + 1) pi /
//                                  32; l: length
//   last coordinate (odd head_dim): round(127 x / |x row|)
//   signs: 1 where the error is positive or zero
//
// So one register of codes becomes two steps of coordinates, x and y.
//
// Size: 2 + ceil(head_dim / 2) bytes a row, and 2 + head_dim / 8 more for polar4r, h and head_dim rounded up
// as panel_codes.h says. Error for Gaussian rows: 0.0095 of |x|^2 as the scalar code of 4 bits; with the
// residual 0.0035 (errors of a pair are no uniform noise of equal size, so the bit removes less than the
// three quarters it would from that).
#pragma once

#include <stdint.h>
#include <string.h>

#include "format/code_format.h"
#include "format/code_parts.h"
#include "format/panel_codes.h"

namespace quire {

// cos((2 a + 1) pi / 32); the sine of part a is the cosine of part 7 - a.
QUIRE_INLINE float polar_cosine(int a) {
  constexpr float kCosines[8] = {0.995184727f, 0.956940336f, 0.881921264f, 0.773010453f,
                                 0.634393284f, 0.471396737f, 0.290284677f, 0.0980171403f};
  return kCosines[a];
}

// squares[l]: square of the threshold between lengths l and l + 1.
QUIRE_INLINE uint8_t polar_code_pair(float x, float y, const float* squares) {
  constexpr float kTangents[7] = {0.198912367f, 0.414213562f, 0.668178638f, 1.0f,
                                  1.49660576f,  2.41421356f,  5.02733949f};  // of k pi / 16
  int angle = 0;
  for (int k = 0; k < 7; ++k) angle += __builtin_fabsf(y) > kTangents[k] * __builtin_fabsf(x);
  const float square = x * x + y * y;
  int length = 0;
  for (int l = 0; l < 7; ++l) length += square > squares[l];
  const int signs = (x < 0.0f ? 0 : 2) | (y < 0.0f ? 0 : 1);
  return (uint8_t)(signs << 6 | angle << 3 | length);
}

QUIRE_INLINE int odd_code(float scaled, float norm) {
  const float share = norm > 0.0f ? scaled / norm : 0.0f;
  return (int)clamp_to(__builtin_rintf(127.0f * share), -127.0f, 127.0f);
}

// Codes of a scaled row, the odd coordinate last; returns the norm of what they stand for.
QUIRE_INLINE float polar_code_row(const float* scaled, float norm, int n, const Codebook& book,
                                  uint8_t* codes) {
  const int n_pairs = n / 2;
  float squares[7];
  for (int l = 0; l < 7; ++l) squares[l] = (book.thresholds[l] * norm) * (book.thresholds[l] * norm);
  int counts[8] = {0};
  for (int p = 0; p < n_pairs; ++p) {
    codes[p] = polar_code_pair(scaled[p], scaled[p + n_pairs], squares);
    ++counts[codes[p] & 7];
  }
  float sum = 0.0f;
  for (int l = 0; l < 8; ++l) sum += (float)counts[l] * (book.centroids[l] * book.centroids[l]);
  if (n % 2 != 0) {
    const int code = odd_code(scaled[n - 1], norm);
    codes[n_pairs] = (uint8_t)(int8_t)code;
    sum += ((float)code / 127.0f) * ((float)code / 127.0f);
  }
  return __builtin_sqrtf(sum);
}

QUIRE_INLINE void polar_decode_row(const uint8_t* codes, float norm, int n, const Codebook& book,
                                   float* out) {
  const int n_pairs = n / 2;
  for (int p = 0; p < n_pairs; ++p) {
    const int code = codes[p];
    const int angle = (code >> 3) & 7;
    const float length = norm * book.centroids[code & 7];
    const float x = length * polar_cosine(angle);
    const float y = length * polar_cosine(7 - angle);
    out[p] = code & 0x80 ? x : -x;
    out[p + n_pairs] = code & 0x40 ? y : -y;
  }
  if (n % 2 != 0) out[n - 1] = norm * ((float)(int8_t)codes[n_pairs] / 127.0f);
}

template <bool residual>
struct PolarPages {
  using Panel = PanelCodes<8>;  // of the pairs
  using Signs = PanelCodes<1>;
  static constexpr int kNormsBytes = (residual ? 4 : 2) * kPageRows;

  static constexpr int codes_offset(int head_dim) {
    return kNormsBytes + (head_dim % 2 != 0 ? kPageRows : 0);
  }
  static constexpr int key_signs_offset(int head_dim) {
    return codes_offset(head_dim) + Panel::key_bytes(head_dim / 2);
  }
  static constexpr int value_signs_offset(int head_dim) {
    return codes_offset(head_dim) + Panel::value_bytes(head_dim / 2);
  }
  static constexpr int key_page_bytes(int head_dim) {
    return key_signs_offset(head_dim) + (residual ? Signs::key_bytes(head_dim) : 0);
  }
  static constexpr int value_page_bytes(int head_dim) {
    return value_signs_offset(head_dim) + (residual ? Signs::value_bytes(head_dim) : 0);
  }

  // Codes of a page's rows, [64][kMaxHeadDim] with zeros behind them.
  struct Coded {
    uint8_t pairs[kPageRows * kMaxHeadDim];
    uint8_t signs[kPageRows * kMaxHeadDim];
  };

  QUIRE_INLINE void encode_keys(const float* rows, int head_dim, const Codebook& book, uint8_t* page) {
    Coded coded;
    code_rows(rows, head_dim, book, &coded, page);
    Panel::put_keys(coded.pairs, head_dim / 2, page + codes_offset(head_dim));
    if constexpr (residual) Signs::put_keys(coded.signs, head_dim, page + key_signs_offset(head_dim));
  }
  QUIRE_INLINE void encode_values(const float* rows, int head_dim, const Codebook& book, uint8_t* page) {
    Coded coded;
    code_rows(rows, head_dim, book, &coded, page);
    Panel::put_values(coded.pairs, head_dim / 2, page + codes_offset(head_dim));
    if constexpr (residual) Signs::put_values(coded.signs, head_dim, page + value_signs_offset(head_dim));
  }

  QUIRE_INLINE void decode_key_row(const uint8_t* page, int head_dim, int row, const Codebook& book,
                                   float* out) {
    const uint8_t* packs = page + codes_offset(head_dim);
    uint8_t codes[kMaxHeadDim];
    for (int p = 0; p < head_dim / 2; ++p) codes[p] = (uint8_t)Panel::get_key(packs, head_dim / 2, row, p);
    decode_pairs(page, head_dim, row, book, codes, out);
    if constexpr (residual) {
      const float size = get_half(page + 2 * (kPageRows + row));
      for (int d = 0; d < head_dim; ++d) {
        out[d] += Signs::get_key(page + key_signs_offset(head_dim), head_dim, row, d) != 0 ? size : -size;
      }
    }
  }
  QUIRE_INLINE void decode_value_row(const uint8_t* page, int head_dim, int row, const Codebook& book,
                                     float* out) {
    const uint8_t* packs = page + codes_offset(head_dim);
    uint8_t codes[kMaxHeadDim];
    for (int p = 0; p < head_dim / 2; ++p) codes[p] = (uint8_t)Panel::get_value(packs, row, p);
    decode_pairs(page, head_dim, row, book, codes, out);
    if constexpr (residual) {
      const float size = get_half(page + 2 * (kPageRows + row));
      for (int d = 0; d < head_dim; ++d) {
        out[d] += Signs::get_value(page + value_signs_offset(head_dim), row, d) != 0 ? size : -size;
      }
    }
  }

 private:
  // Norms, sizes of errors and odd coordinates to the page, the codes of pairs and errors to `coded`.
  QUIRE_INLINE void code_rows(const float* rows, int head_dim, const Codebook& book, Coded* coded,
                              uint8_t* page) {
    memset(coded, 0, sizeof *coded);
    for (int t = 0; t < kPageRows; ++t) {
      const float* x = rows + t * head_dim;
      uint8_t* signs = coded->signs + t * kMaxHeadDim;
      code_pairs(x, head_dim, t, book, coded->pairs + t * kMaxHeadDim, page);
      if constexpr (residual) {
        code_errors(x, head_dim, t, book, coded->pairs + t * kMaxHeadDim, signs, page);
      }
    }
  }

  QUIRE_INLINE void code_pairs(const float* x, int head_dim, int row, const Codebook& book, uint8_t* pairs,
                               uint8_t* page) {
    float scaled[kMaxHeadDim];
    uint8_t codes[kMaxHeadDim];
    const ScaledRow of = scale_row(x, head_dim, scaled);
    const float coded = polar_code_row(scaled, of.norm, head_dim, book, codes);
    put_half(page + 2 * row, saturated_half(of.norm / coded * of.unit));
    if (head_dim % 2 != 0) page[kNormsBytes + row] = codes[head_dim / 2];
    for (int p = 0; p < head_dim / 2; ++p) pairs[p] = codes[p];
  }

  // The row without its errors, from the codes of its pairs.
  QUIRE_INLINE void decode_pairs(const uint8_t* page, int head_dim, int row, const Codebook& book,
                                 const uint8_t* pairs, float* out) {
    uint8_t codes[kMaxHeadDim];
    for (int p = 0; p < head_dim / 2; ++p) codes[p] = pairs[p];
    if (head_dim % 2 != 0) codes[head_dim / 2] = page[kNormsBytes + row];
    polar_decode_row(codes, get_half(page + 2 * row), head_dim, book, out);
  }

  QUIRE_INLINE void code_errors(const float* x, int head_dim, int row, const Codebook& book,
                                const uint8_t* pairs, uint8_t* signs, uint8_t* page) {
    float decoded[kMaxHeadDim];
    float ones[kMaxHeadDim];
    decode_pairs(page, head_dim, row, book, pairs, decoded);
    for (int j = 0; j < head_dim; ++j) {
      const float error = x[j] - decoded[j];
      signs[j] = error < 0.0f ? 0 : 1;
      decoded[j] = __builtin_fabsf(error);
      ones[j] = 1.0f;
    }
    const float size = dot_fixed(decoded, ones, head_dim) / (float)head_dim;
    put_half(page + 2 * (kPageRows + row), saturated_half(size));
  }
};

struct Polar4 : PolarPages<false> {
  static constexpr CodeInfo kInfo = {"polar4",
                                     4,
                                     4,
                                     0.0098,
                                     0.0098,
                                     true,
                                     "PolarQuant, arXiv 2502.00527, rotated, 3-bit length, 5-bit angle"};
  static constexpr CodebookSpec kCodebook = {CodebookKind::kPair, 3};
};

struct Polar4r : PolarPages<true> {
  static constexpr CodeInfo kInfo = {
      "polar4r", 5, 5, 0.0039, 0.0039, true, "polar4 and a residual bit, after Monarch"};
  static constexpr CodebookSpec kCodebook = {CodebookKind::kPair, 3};
};

}  // namespace quire
