// turbo2, turbo3, turbo4: the codes of turbo.h laid out for reading every row.
//
// Same code of a row, in the order of panel_codes.h. A code here is an index into the 16 (8, 4) rising
// centroids, so negative ones come first: rank = code of turbo.h for the positive half, half - 1 - magnitude
// for the negative one.
//
// Page: norms f16 [64] | packs of ranks.
#pragma once

#include <stdint.h>
#include <string.h>

#include "format/code_format.h"
#include "format/code_parts.h"
#include "format/panel_codes.h"
#include "format/turbo.h"

namespace quire {

// Codes of turbo.h (sign and magnitude) as ranks among rising centroids, and back.
template <int bits>
QUIRE_INLINE int rank_of(int code) {
  constexpr int half = 1 << (bits - 1);
  return code >= half ? code : half - 1 - code;
}

constexpr const char* kTurboNames[] = {"turbo2", "turbo3", "turbo4"};

template <int bits>
struct TurboPanel {
  static_assert(bits >= 2 && bits <= 4);
  using Panel = PanelCodes<bits>;
  static constexpr CodeInfo kInfo = {kTurboNames[bits - 2],
                                     bits,
                                     bits,
                                     Turbo<bits>::kInfo.key_distortion,
                                     Turbo<bits>::kInfo.value_distortion,
                                     true,
                                     "TurboQuant, arXiv 2504.19874, algorithm 1, norm corrected"};
  static constexpr CodebookSpec kCodebook = Turbo<bits>::kCodebook;
  static constexpr int kNormBytes = 2 * kPageRows;

  static constexpr int key_page_bytes(int head_dim) { return kNormBytes + Panel::key_bytes(head_dim); }
  static constexpr int value_page_bytes(int head_dim) { return kNormBytes + Panel::value_bytes(head_dim); }

  // The norm of the row and the ranks of its coordinates.
  QUIRE_INLINE uint16_t code_row(const float* x, int head_dim, const Codebook& book, uint8_t* codes) {
    float scaled[kMaxHeadDim];
    const ScaledRow row = scale_row(x, head_dim, scaled);
    const float centroids_norm = turbo_code_row<bits>(scaled, row.norm, head_dim, book, codes);
    return saturated_half(row.norm / centroids_norm * row.unit);
  }

  // Norms to the page, ranks [64][kMaxHeadDim] with zeros behind head_dim.
  QUIRE_INLINE void code_rows(const float* rows, int head_dim, const Codebook& book, uint8_t* ranks,
                              uint8_t* page) {
    uint8_t codes[kCodeBufferBytes];
    for (int t = 0; t < kPageRows; ++t) {
      put_half(page + 2 * t, code_row(rows + t * head_dim, head_dim, book, codes));
      uint8_t* row = ranks + t * kMaxHeadDim;
      for (int d = 0; d < head_dim; ++d) row[d] = (uint8_t)rank_of<bits>(codes[d]);
      for (int d = head_dim; d < kMaxHeadDim; ++d) row[d] = 0;
    }
  }

  QUIRE_INLINE void encode_keys(const float* rows, int head_dim, const Codebook& book, uint8_t* page) {
    uint8_t ranks[kPageRows * kMaxHeadDim];
    code_rows(rows, head_dim, book, ranks, page);
    Panel::put_keys(ranks, head_dim, page + kNormBytes);
  }

  QUIRE_INLINE void encode_values(const float* rows, int head_dim, const Codebook& book, uint8_t* page) {
    uint8_t ranks[kPageRows * kMaxHeadDim];
    code_rows(rows, head_dim, book, ranks, page);
    Panel::put_values(ranks, head_dim, page + kNormBytes);
  }

  QUIRE_INLINE float centroid(const Codebook& book, int rank) { return book.centroids[rank_of<bits>(rank)]; }

  QUIRE_INLINE void decode_key_row(const uint8_t* page, int head_dim, int row, const Codebook& book,
                                   float* out) {
    const float norm = get_half(page + 2 * row);
    for (int d = 0; d < head_dim; ++d) {
      out[d] = norm * centroid(book, Panel::get_key(page + kNormBytes, head_dim, row, d));
    }
  }

  QUIRE_INLINE void decode_value_row(const uint8_t* page, int head_dim, int row, const Codebook& book,
                                     float* out) {
    const float norm = get_half(page + 2 * row);
    for (int d = 0; d < head_dim; ++d) {
      out[d] = norm * centroid(book, Panel::get_value(page + kNormBytes, row, d));
    }
  }
};

}  // namespace quire
