// nested2, nested3, nested4: a rotated row as its norm and a Lloyd-Max code of every coordinate of its
// direction.
//
// TurboQuant (arXiv 2504.19874), algorithm 1, with two differences: the norm stored is |x| / |c(x)|, where
// c(x) are the centroids chosen, so that a decoded row has the norm of the row (the paper's rows shrink, and
// with them the scores); and codes lie in planes, nested: the sign plane alone is the 1-bit code, and serves
// as the index of all rows. Rows come in already rotated (frame.h).
//
// Key page, D = ceil(head_dim / 8) (planes: code_parts.h):
//
//   0          sign plane [D][64]: byte (g, t), bit j = 1 where dim 8 g + j of token t is positive or zero
//   64 D       norms f16 [64]
//   64 D + 128 [64 tokens][b - 1 planes][D]: magnitude bits of a row together, the highest plane first
//
// of which the first 64 D + 128 bytes are the index, which may lie apart.
//
// Value page: [64 tokens][norm f16 | b planes][D]: the sign plane first, then magnitude bits, the highest
// first. A row is in one place, as few of them are read.
//
// Size: 2 + b D bytes a row, keys and values alike. Error for Gaussian rows: at most 2 (1 - sqrt(1 - D_b)) of
// |x|^2, D_b the distortion of the Lloyd-Max code (less, as the norm takes the error along x away). Rows of a
// norm below 2^-14 lose the precision of f16 subnormals; those of one above 65504 are decoded with 65504.
#pragma once

#include <stdint.h>
#include <string.h>

#include "format/code_format.h"
#include "format/code_parts.h"

namespace quire {

// Codes of a scaled row; returns |c(x)|. codes needs kCodeBufferBytes, and is zeroed past n.
template <int bits>
QUIRE_INLINE float turbo_code_row(const float* scaled, float norm, int n, const Codebook& book,
                                  uint8_t* codes) {
  constexpr int half = 1 << (bits - 1);
  for (int j = 0; j < 8 * plane_bytes(n); ++j) codes[j] = 0;
  int above[half + 1];  // how many values have a magnitude of at least m
  above[0] = n;
  above[half] = 0;
  for (int m = 1; m < half; ++m) {
    const float threshold = book.thresholds[m - 1] * norm;
    int count = 0;
    for (int j = 0; j < n; ++j) {
      const int over = __builtin_fabsf(scaled[j]) > threshold;
      codes[j] = (uint8_t)(codes[j] + over);
      count += over;
    }
    above[m] = count;
  }
  for (int j = 0; j < n; ++j) codes[j] = (uint8_t)(codes[j] | (scaled[j] < 0.0f ? 0 : half));
  // Whole counts make this sum the same in any order of the values.
  float squares = 0.0f;
  for (int m = 0; m < half; ++m) {
    const float centroid = book.centroids[half + m];
    squares += (float)(above[m] - above[m + 1]) * (centroid * centroid);
  }
  return __builtin_sqrtf(squares);
}

// Where the parts of a row lie in its page.
struct TurboRow {
  uint8_t* norm;
  uint8_t* sign;  // byte g at sign[g * sign_stride]
  int sign_stride;
  uint8_t* planes;  // of the magnitude, the highest first, each plane_bytes(head_dim)
};

constexpr const char* kNestedNames[] = {"nested1", "nested2", "nested3", "nested4"};

template <int bits>
struct Turbo {
  static_assert(bits >= 1 && bits <= 4);
  static constexpr double kBounds[4] = {0.43, 0.1225, 0.0352, 0.0097};
  static constexpr CodeInfo kInfo = {
      kNestedNames[bits - 1],
      bits,
      bits,
      kBounds[bits - 1],
      kBounds[bits - 1],
      true,
      "TurboQuant, arXiv 2504.19874, algorithm 1, norm corrected, in bit planes"};
  static constexpr CodebookSpec kCodebook = {CodebookKind::kCoordinate, bits};

  // Key pages.
  QUIRE_INLINE constexpr int key_norms_offset(int head_dim) { return kPageRows * plane_bytes(head_dim); }
  QUIRE_INLINE constexpr int key_planes_bytes(int head_dim) { return (bits - 1) * plane_bytes(head_dim); }
  // Value pages: the norm of a row, then its planes.
  static constexpr int kValueNormBytes = 2;
  QUIRE_INLINE constexpr int value_row_bytes(int head_dim) {
    return kValueNormBytes + bits * plane_bytes(head_dim);
  }

  QUIRE_INLINE constexpr int key_page_bytes(int head_dim) {
    return kPageRows * (2 + bits * plane_bytes(head_dim));
  }
  QUIRE_INLINE constexpr int value_page_bytes(int head_dim) { return key_page_bytes(head_dim); }

  static constexpr int index_page_bytes(int head_dim) { return key_norms_offset(head_dim) + 2 * kPageRows; }
  static constexpr int index_norms_offset(int head_dim) { return key_norms_offset(head_dim); }

  QUIRE_INLINE TurboRow key_row(uint8_t* index, uint8_t* rows, int head_dim, int row) {
    return {index + key_norms_offset(head_dim) + 2 * row, index + row, kPageRows,
            rows + row * key_planes_bytes(head_dim)};
  }

  QUIRE_INLINE TurboRow value_row(uint8_t* page, int head_dim, int row) {
    uint8_t* norm = page + row * value_row_bytes(head_dim);
    uint8_t* planes = norm + kValueNormBytes;
    return {norm, planes, 1, planes + plane_bytes(head_dim)};
  }

  QUIRE_INLINE void encode_row(const float* x, int head_dim, const Codebook& book, const TurboRow& to) {
    float scaled[kMaxHeadDim];
    uint8_t codes[kCodeBufferBytes];
    const ScaledRow row = scale_row(x, head_dim, scaled);
    const float centroids_norm = turbo_code_row<bits>(scaled, row.norm, head_dim, book, codes);
    put_half(to.norm, saturated_half(row.norm / centroids_norm * row.unit));
    put_plane(codes, head_dim, bits - 1, to.sign, to.sign_stride);
    for (int p = 1; p < bits; ++p) {
      put_plane(codes, head_dim, bits - 1 - p, to.planes + (p - 1) * plane_bytes(head_dim), 1);
    }
  }

  QUIRE_INLINE void decode_row(const TurboRow& from, int head_dim, const Codebook& book, float* out) {
    uint8_t codes[kCodeBufferBytes];
    memset(codes, 0, 8 * (size_t)plane_bytes(head_dim));
    add_plane(from.sign, head_dim, from.sign_stride, bits - 1, codes);
    for (int p = 1; p < bits; ++p) {
      add_plane(from.planes + (p - 1) * plane_bytes(head_dim), head_dim, 1, bits - 1 - p, codes);
    }
    const float norm = get_half(from.norm);
    for (int j = 0; j < head_dim; ++j) out[j] = norm * book.centroids[codes[j]];
  }

  QUIRE_INLINE void encode_keys(const float* rows, int head_dim, const Codebook& book, uint8_t* index,
                                uint8_t* planes) {
    for (int t = 0; t < kPageRows; ++t) {
      encode_row(rows + t * head_dim, head_dim, book, key_row(index, planes, head_dim, t));
    }
  }
  QUIRE_INLINE void encode_keys(const float* rows, int head_dim, const Codebook& book, uint8_t* page) {
    encode_keys(rows, head_dim, book, page, page + index_page_bytes(head_dim));
  }
  QUIRE_INLINE void encode_values(const float* rows, int head_dim, const Codebook& book, uint8_t* page) {
    for (int t = 0; t < kPageRows; ++t) {
      encode_row(rows + t * head_dim, head_dim, book, value_row(page, head_dim, t));
    }
  }
  // The page is only read: TurboRow points to bytes that may be written for the encoder's sake.
  QUIRE_INLINE void decode_key_row(KeyPage page, int head_dim, int row, const Codebook& book, float* out) {
    decode_row(key_row(const_cast<uint8_t*>(page.index), const_cast<uint8_t*>(page.rows), head_dim, row),
               head_dim, book, out);
  }
  QUIRE_INLINE void decode_key_row(const uint8_t* page, int head_dim, int row, const Codebook& book,
                                   float* out) {
    decode_key_row({page, page + index_page_bytes(head_dim)}, head_dim, row, book, out);
  }
  QUIRE_INLINE void decode_value_row(const uint8_t* page, int head_dim, int row, const Codebook& book,
                                     float* out) {
    decode_row(value_row(const_cast<uint8_t*>(page), head_dim, row), head_dim, book, out);
  }
};

}  // namespace quire
