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
// Page, keys and values alike but for the order of panel_codes.h:
//
//   |x| f16 [64] | |r| f16 [64] | packs of b - 1 bits: ranks of turbo_panel.h | packs of 1 bit: sign(S r)
//
// Size: 4 + b head_dim / 8 bytes a row, head_dim rounded up as panel_codes.h says. Error of a product: pi /
// (2 d) D_(b-1) |q|^2 |x|^2; of the row, (pi / 2) D_(b-1) |x|^2 (the sketch's own terms; D_b the distortion
// of the Lloyd-Max code).
#pragma once

#include <stdint.h>
#include <string.h>

#include "format/code_format.h"
#include "format/code_parts.h"
#include "format/panel_codes.h"
#include "format/turbo.h"
#include "format/turbo_panel.h"

namespace quire {

constexpr const char* kTurboProdNames[] = {"turbo2q", "turbo3q", "turbo4q"};

template <int bits>
struct TurboProd {
  static_assert(bits >= 2 && bits <= 4);
  static constexpr int kCodeBits = bits - 1;
  static constexpr double kBounds[3] = {0.60, 0.195, 0.058};
  static constexpr CodeInfo kInfo = {kTurboProdNames[bits - 2],
                                     bits,
                                     bits,
                                     kBounds[bits - 2],
                                     kBounds[bits - 2],
                                     true,
                                     "TurboQuant, arXiv 2504.19874, algorithm 2"};
  static constexpr CodebookSpec kCodebook = {CodebookKind::kSketched, kCodeBits};

  using Panel = PanelCodes<kCodeBits>;
  using Signs = PanelCodes<1>;
  static constexpr int kNormsBytes = 4 * kPageRows;

  static constexpr int key_signs_offset(int head_dim) { return kNormsBytes + Panel::key_bytes(head_dim); }
  static constexpr int value_signs_offset(int head_dim) { return kNormsBytes + Panel::value_bytes(head_dim); }
  static constexpr int key_page_bytes(int head_dim) {
    return key_signs_offset(head_dim) + Signs::key_bytes(head_dim);
  }
  static constexpr int value_page_bytes(int head_dim) {
    return value_signs_offset(head_dim) + Signs::value_bytes(head_dim);
  }

  QUIRE_INLINE float centroid(const Codebook& book, int rank) {
    return book.centroids[rank_of<kCodeBits>(rank)];
  }
  // What a sign is worth times |x| |r|.
  QUIRE_INLINE float sign_unit(int head_dim) { return 1.25331414f / (float)head_dim; }  // sqrt(pi / 2) / d

  // One row: ranks and signs, and the norms to the page.
  QUIRE_INLINE void code_row(const float* x, int head_dim, const Codebook& book, uint8_t* ranks,
                             uint8_t* signs, uint8_t* norms) {
    float rest[kMaxHeadDim];
    uint8_t codes[kCodeBufferBytes];
    const ScaledRow row = scale_row(x, head_dim, rest);
    turbo_code_row<kCodeBits>(rest, row.norm, head_dim, book, codes);
    const float inverse = row.norm > 0.0f ? 1.0f / row.norm : 0.0f;
    for (int j = 0; j < head_dim; ++j) {
      rest[j] = rest[j] * inverse - book.centroids[codes[j]];
      ranks[j] = (uint8_t)rank_of<kCodeBits>(codes[j]);
    }
    for (int i = 0; i < head_dim; ++i) {
      signs[i] = dot_fixed(book.sketch + i * head_dim, rest, head_dim) < 0.0f ? 0 : 1;
    }
    put_half(norms, saturated_half(row.norm * row.unit));
    put_half(norms + 2 * kPageRows, saturated_half(__builtin_sqrtf(dot_fixed(rest, rest, head_dim))));
  }

  // Codes of a page's rows, [64][kMaxHeadDim] with zeros behind head_dim.
  struct Coded {
    uint8_t ranks[kPageRows * kMaxHeadDim];
    uint8_t signs[kPageRows * kMaxHeadDim];
  };
  QUIRE_INLINE void code_rows(const float* rows, int head_dim, const Codebook& book, Coded* coded,
                              uint8_t* page) {
    memset(coded, 0, sizeof *coded);
    for (int t = 0; t < kPageRows; ++t) {
      code_row(rows + t * head_dim, head_dim, book, coded->ranks + t * kMaxHeadDim,
               coded->signs + t * kMaxHeadDim, page + 2 * t);
    }
  }

  QUIRE_INLINE void encode_keys(const float* rows, int head_dim, const Codebook& book, uint8_t* page) {
    Coded coded;
    code_rows(rows, head_dim, book, &coded, page);
    Panel::put_keys(coded.ranks, head_dim, page + kNormsBytes);
    Signs::put_keys(coded.signs, head_dim, page + key_signs_offset(head_dim));
  }
  QUIRE_INLINE void encode_values(const float* rows, int head_dim, const Codebook& book, uint8_t* page) {
    Coded coded;
    code_rows(rows, head_dim, book, &coded, page);
    Panel::put_values(coded.ranks, head_dim, page + kNormsBytes);
    Signs::put_values(coded.signs, head_dim, page + value_signs_offset(head_dim));
  }

  // From the row's ranks and signs; norms: where |x| stands.
  QUIRE_INLINE void decode_row(const uint8_t* ranks, const uint8_t* signs, const uint8_t* norms, int head_dim,
                               const Codebook& book, float* out) {
    for (int j = 0; j < head_dim; ++j) out[j] = 0.0f;
    for (int i = 0; i < head_dim; ++i) {
      const float sign = signs[i] != 0 ? 1.0f : -1.0f;
      for (int j = 0; j < head_dim; ++j) out[j] += sign * book.sketch[i * head_dim + j];
    }
    const float norm = get_half(norms);
    const float rest = sign_unit(head_dim) * get_half(norms + 2 * kPageRows);
    for (int j = 0; j < head_dim; ++j) out[j] = norm * (centroid(book, ranks[j]) + rest * out[j]);
  }

  QUIRE_INLINE void decode_key_row(const uint8_t* page, int head_dim, int row, const Codebook& book,
                                   float* out) {
    uint8_t ranks[kMaxHeadDim], signs[kMaxHeadDim];
    for (int d = 0; d < head_dim; ++d) {
      ranks[d] = (uint8_t)Panel::get_key(page + kNormsBytes, head_dim, row, d);
      signs[d] = (uint8_t)Signs::get_key(page + key_signs_offset(head_dim), head_dim, row, d);
    }
    decode_row(ranks, signs, page + 2 * row, head_dim, book, out);
  }
  QUIRE_INLINE void decode_value_row(const uint8_t* page, int head_dim, int row, const Codebook& book,
                                     float* out) {
    uint8_t ranks[kMaxHeadDim], signs[kMaxHeadDim];
    for (int d = 0; d < head_dim; ++d) {
      ranks[d] = (uint8_t)Panel::get_value(page + kNormsBytes, row, d);
      signs[d] = (uint8_t)Signs::get_value(page + value_signs_offset(head_dim), row, d);
    }
    decode_row(ranks, signs, page + 2 * row, head_dim, book, out);
  }
};

}  // namespace quire
