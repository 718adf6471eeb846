// Pages of formats that code each row by itself, keys like values: 64 rows of bytes, one after another.
#pragma once

#include <stdint.h>

#include "format/code_format.h"

namespace quire {

// Row offers row_bytes(head_dim), encode(x, head_dim, book, bytes) and decode(bytes, head_dim, book, out).
template <class Row>
struct RowPages {
  QUIRE_INLINE constexpr int key_page_bytes(int head_dim) { return kPageRows * Row::row_bytes(head_dim); }
  QUIRE_INLINE constexpr int value_page_bytes(int head_dim) { return key_page_bytes(head_dim); }

  QUIRE_INLINE void encode_keys(const float* rows, int head_dim, const Codebook& book, uint8_t* page) {
    for (int t = 0; t < kPageRows; ++t) {
      Row::encode(rows + t * head_dim, head_dim, book, page + t * Row::row_bytes(head_dim));
    }
  }
  QUIRE_INLINE void encode_values(const float* rows, int head_dim, const Codebook& book, uint8_t* page) {
    encode_keys(rows, head_dim, book, page);
  }
  QUIRE_INLINE void decode_key_row(const uint8_t* page, int head_dim, int row, const Codebook& book,
                                   float* out) {
    Row::decode(page + row * Row::row_bytes(head_dim), head_dim, book, out);
  }
  QUIRE_INLINE void decode_value_row(const uint8_t* page, int head_dim, int row, const Codebook& book,
                                     float* out) {
    decode_key_row(page, head_dim, row, book, out);
  }
};

}  // namespace quire
