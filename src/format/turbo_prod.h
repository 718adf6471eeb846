// turbo2q, turbo3q, turbo4q: turbo codes of one bit less, and one bit a value that makes products unbiased.
//
// TurboQuant (arXiv 2504.19874), algorithm 2: u = x / |x| in the rotated frame, c(u) its Lloyd-Max code of
// b - 1 bits (turbo.h, without norm correction), r = u - c(u), and the sign bits of S r, S Gaussian (QJL,
// arXiv 2406.03482; sketch.h):
//
//   x^ = |x| (c(u) + sqrt(pi / 2) / d |r| S^T sign(S r)),   E <q, x^> = <q, x> over S
//
// Unbiased, but of more error than a turbo code of as many bits: kept for comparison.
//
// Key page, D = ceil(head_dim / 8) (planes: code_parts.h):
//
//   0          sign plane [D][64], as in turbo.h
//   64 D       |x| f16 [64]
//   64 D + 128 |r| f16 [64]
//   64 D + 256 [64 tokens][b - 1 planes][D]: b - 2 of the magnitude, the highest first, then sign(S r)
//
// Value page: |x| f16 [64] | |r| f16 [64] | [64 tokens][b planes][D]: sign, magnitude, sign(S r).
//
// Size: 4 + b D bytes a row. Error of a product: pi / (2 d) D_(b-1) |q|^2 |x|^2; of the row,
// (pi / 2) D_(b-1) |x|^2 (the sketch's own terms; D_b the distortion of the Lloyd-Max code).
#pragma once

#include <stdint.h>
#include <string.h>

#include "format/code_format.h"
#include "format/code_parts.h"
#include "format/turbo.h"

namespace quire {

template <int bits>
struct TurboProd {
  static_assert(bits >= 2 && bits <= 4);
  static constexpr int kCodeBits = bits - 1;
  static constexpr double kBounds[3] = {0.60, 0.195, 0.058};
  static constexpr const char* kNames[3] = {"turbo2q", "turbo3q", "turbo4q"};
  static constexpr CodeInfo kInfo = {kNames[bits - 2],
                                     bits,
                                     bits,
                                     kBounds[bits - 2],
                                     kBounds[bits - 2],
                                     true,
                                     "TurboQuant, arXiv 2504.19874, algorithm 2"};
  static constexpr CodebookSpec kCodebook = {CodebookKind::kSketched, kCodeBits};

  QUIRE_INLINE constexpr int key_norms_offset(int head_dim) { return kPageRows * plane_bytes(head_dim); }
  QUIRE_INLINE constexpr int key_planes_offset(int head_dim) {
    return key_norms_offset(head_dim) + 4 * kPageRows;
  }
  static constexpr int kValuePlanesOffset = 4 * kPageRows;
  QUIRE_INLINE constexpr int key_page_bytes(int head_dim) {
    return kPageRows * (4 + bits * plane_bytes(head_dim));
  }
  QUIRE_INLINE constexpr int value_page_bytes(int head_dim) { return key_page_bytes(head_dim); }

  // |r| lies 64 halves behind |x|.
  QUIRE_INLINE TurboRow key_row(uint8_t* page, int head_dim, int row) {
    return {page + key_norms_offset(head_dim) + 2 * row, page + row, kPageRows,
            page + key_planes_offset(head_dim) + row * (bits - 1) * plane_bytes(head_dim)};
  }
  QUIRE_INLINE TurboRow value_row(uint8_t* page, int head_dim, int row) {
    uint8_t* planes = page + kValuePlanesOffset + row * bits * plane_bytes(head_dim);
    return {page + 2 * row, planes, 1, planes + plane_bytes(head_dim)};
  }

  QUIRE_INLINE void encode_row(const float* x, int head_dim, const Codebook& book, const TurboRow& to) {
    float rest[kMaxHeadDim];
    uint8_t codes[kCodeBufferBytes];
    const ScaledRow row = scale_row(x, head_dim, rest);
    turbo_code_row<kCodeBits>(rest, row.norm, head_dim, book, codes);
    const float inverse = row.norm > 0.0f ? 1.0f / row.norm : 0.0f;
    for (int j = 0; j < head_dim; ++j) rest[j] = rest[j] * inverse - book.centroids[codes[j]];
    put_half(to.norm, saturated_half(row.norm * row.unit));
    put_half(to.norm + 2 * kPageRows, saturated_half(__builtin_sqrtf(dot_fixed(rest, rest, head_dim))));
    put_plane(codes, head_dim, kCodeBits - 1, to.sign, to.sign_stride);
    uint8_t* plane = to.planes;
    for (int bit = kCodeBits - 2; bit >= 0; --bit, plane += plane_bytes(head_dim)) {
      put_plane(codes, head_dim, bit, plane, 1);
    }
    for (int i = 0; i < head_dim; ++i) {
      codes[i] = dot_fixed(book.sketch + i * head_dim, rest, head_dim) < 0.0f ? 0 : 1;
    }
    put_plane(codes, head_dim, 0, plane, 1);
  }

  QUIRE_INLINE void decode_row(const TurboRow& from, int head_dim, const Codebook& book, float* out) {
    uint8_t codes[kCodeBufferBytes];
    memset(codes, 0, 8 * (size_t)plane_bytes(head_dim));
    add_plane(from.sign, head_dim, from.sign_stride, kCodeBits - 1, codes);
    const uint8_t* plane = from.planes;
    for (int bit = kCodeBits - 2; bit >= 0; --bit, plane += plane_bytes(head_dim)) {
      add_plane(plane, head_dim, 1, bit, codes);
    }
    for (int j = 0; j < head_dim; ++j) out[j] = 0.0f;
    for (int i = 0; i < head_dim; ++i) {
      const float sign = (plane[i / 8] >> (i % 8)) & 1 ? 1.0f : -1.0f;
      for (int j = 0; j < head_dim; ++j) out[j] += sign * book.sketch[i * head_dim + j];
    }
    const float norm = get_half(from.norm);
    const float rest = 1.25331414f / (float)head_dim * get_half(from.norm + 2 * kPageRows);  // sqrt(pi / 2)
    for (int j = 0; j < head_dim; ++j) out[j] = norm * (book.centroids[codes[j]] + rest * out[j]);
  }

  QUIRE_INLINE void encode_keys(const float* rows, int head_dim, const Codebook& book, uint8_t* page) {
    for (int t = 0; t < kPageRows; ++t) {
      encode_row(rows + t * head_dim, head_dim, book, key_row(page, head_dim, t));
    }
  }
  QUIRE_INLINE void encode_values(const float* rows, int head_dim, const Codebook& book, uint8_t* page) {
    for (int t = 0; t < kPageRows; ++t) {
      encode_row(rows + t * head_dim, head_dim, book, value_row(page, head_dim, t));
    }
  }
  QUIRE_INLINE void decode_key_row(const uint8_t* page, int head_dim, int row, const Codebook& book,
                                   float* out) {
    decode_row(key_row(const_cast<uint8_t*>(page), head_dim, row), head_dim, book, out);
  }
  QUIRE_INLINE void decode_value_row(const uint8_t* page, int head_dim, int row, const Codebook& book,
                                     float* out) {
    decode_row(value_row(const_cast<uint8_t*>(page), head_dim, row), head_dim, book, out);
  }
};

}  // namespace quire
