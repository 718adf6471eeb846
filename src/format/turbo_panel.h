// turbo2, turbo3, turbo4: the codes of turbo.h laid out for reading every row.
//
// Same code of a row, other order of its bits: a register of 64 bytes is filled by one load, and byte dot
// products need no sum across lanes. A code here is an index into the 16 (8, 4) rising centroids, so negative
// ones come first: rank = code of turbo.h for the positive half, half - 1 - magnitude for the negative one.
//
// Keys, in quads of four dims, Q = ceil(head_dim / 4) rounded up to even. Step s = 16 tokens and one quad:
//
//   a step's 64 ranks: position 4 t + j is token t of the sixteen, dim j of the quad
//
// Values, in quads of four tokens. Step s = 16 dims and one quad of tokens, D16 = ceil(head_dim / 16) of
// dims:
//
//   a step's 64 ranks: position 4 d + j is dim d of the sixteen, token j of the quad
//
// Ranks of steps are packed together, `kSteps` steps in a pack, so that unpacking is a shift and a mask:
//
//   turbo4: 64 bytes = 2 steps, step i in bits 4 i..4 i + 3 of each byte
//   turbo2: 64 bytes = 4 steps, step i in bits 2 i..2 i + 1
//   turbo3: 64 bytes = 4 steps as turbo2 holds the two upper bits, then 4 words of 64 bits with the lowest
//   bit
//
// Page: norms f16 [64] | packs. Keys: steps in the order sixteen-token block, then quad; values: dim block,
// then quad of tokens. Dims past head_dim take rank 0 and count for nothing (queries are 0 there, outputs are
// not kept).
#pragma once

#include <stdint.h>
#include <string.h>

#include "format/code_format.h"
#include "format/code_parts.h"
#include "format/turbo.h"

namespace quire {

template <int bits>
struct TurboPanel {
  static_assert(bits >= 2 && bits <= 4);
  static constexpr const char* kNames[] = {"turbo2", "turbo3", "turbo4"};
  static constexpr CodeInfo kInfo = {kNames[bits - 2],
                                     bits,
                                     bits,
                                     Turbo<bits>::kInfo.key_distortion,
                                     Turbo<bits>::kInfo.value_distortion,
                                     true,
                                     "TurboQuant, arXiv 2504.19874, algorithm 1, norm corrected"};
  static constexpr CodebookSpec kCodebook = Turbo<bits>::kCodebook;
  static constexpr int kSteps = bits == 4 ? 2 : 4;             // of a pack
  static constexpr int kPackBytes = bits == 3 ? 64 + 32 : 64;  // of kSteps steps
  static constexpr int kNormBytes = 2 * kPageRows;

  // Quads of dims of a key, padded so that the steps of sixteen tokens fill whole packs.
  static constexpr int key_quads(int head_dim) { return ((head_dim + 3) / 4 + kSteps - 1) / kSteps * kSteps; }
  static constexpr int dim_blocks(int head_dim) { return (head_dim + 15) / 16; }

  static constexpr int key_page_bytes(int head_dim) {
    return kNormBytes + 4 * key_quads(head_dim) / kSteps * kPackBytes;
  }
  static constexpr int value_page_bytes(int head_dim) {
    return kNormBytes + 16 * dim_blocks(head_dim) / kSteps * kPackBytes;
  }

  QUIRE_INLINE uint8_t* pack_of(uint8_t* page, int step) {
    return page + kNormBytes + step / kSteps * kPackBytes;
  }

  // steps [kSteps][64] of ranks -> one pack.
  QUIRE_INLINE void put_pack(const uint8_t* steps, uint8_t* pack) {
    constexpr int shift = bits == 4 ? 4 : 2;
    constexpr int dropped = bits == 3 ? 1 : 0;
    for (int p = 0; p < 64; ++p) {
      int byte = 0;
      for (int i = 0; i < kSteps; ++i) byte |= (steps[64 * i + p] >> dropped) << (shift * i);
      pack[p] = (uint8_t)byte;
    }
    if constexpr (bits == 3) {
      for (int i = 0; i < kSteps; ++i) put_plane(steps + 64 * i, 64, 0, pack + 64 + 8 * i, 1);
    }
  }

  QUIRE_INLINE int get_rank(const uint8_t* page, int step, int position) {
    const uint8_t* pack = pack_of(const_cast<uint8_t*>(page), step);
    const int i = step % kSteps;
    if constexpr (bits == 3) {
      const int low = (pack[64 + 8 * i + position / 8] >> (position % 8)) & 1;
      return ((pack[position] >> (2 * i)) & 3) << 1 | low;
    }
    return (pack[position] >> (bits * i)) & ((1 << bits) - 1);
  }

  QUIRE_INLINE int key_step(int head_dim, int row, int d) { return row / 16 * key_quads(head_dim) + d / 4; }
  QUIRE_INLINE int key_position(int row, int d) { return 4 * (row % 16) + d % 4; }
  QUIRE_INLINE int value_step(int row, int d) { return d / 16 * 16 + row / 4; }
  QUIRE_INLINE int value_position(int row, int d) { return 4 * (d % 16) + row % 4; }

  // Codes of turbo.h (sign and magnitude) as ranks among rising centroids, and back.
  static constexpr int kHalf = 1 << (bits - 1);
  QUIRE_INLINE int rank_of(int code) { return code >= kHalf ? code : kHalf - 1 - code; }

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
      for (int d = 0; d < head_dim; ++d) row[d] = (uint8_t)rank_of(codes[d]);
      for (int d = head_dim; d < kMaxHeadDim; ++d) row[d] = 0;
    }
  }

  QUIRE_INLINE void encode_keys(const float* rows, int head_dim, const Codebook& book, uint8_t* page) {
    uint8_t ranks[kPageRows * kMaxHeadDim];
    code_rows(rows, head_dim, book, ranks, page);
    for (int step = 0; step < 4 * key_quads(head_dim); step += kSteps) {
      uint8_t steps[64 * kSteps];
      for (int i = 0; i < kSteps; ++i) {
        const uint8_t* from = ranks + (step + i) / key_quads(head_dim) * 16 * kMaxHeadDim;
        const int quad = (step + i) % key_quads(head_dim);
        for (int t = 0; t < 16; ++t) {
          // The padding quads of head sizes up to kMaxHeadDim stay within a row's kMaxHeadDim ranks.
          memcpy(steps + 64 * i + 4 * t, from + t * kMaxHeadDim + 4 * quad, 4);
        }
      }
      put_pack(steps, pack_of(page, step));
    }
  }

  QUIRE_INLINE void encode_values(const float* rows, int head_dim, const Codebook& book, uint8_t* page) {
    uint8_t ranks[kPageRows * kMaxHeadDim];
    code_rows(rows, head_dim, book, ranks, page);
    for (int step = 0; step < 16 * dim_blocks(head_dim); step += kSteps) {
      uint8_t steps[64 * kSteps];
      for (int i = 0; i < kSteps; ++i) {
        const uint8_t* from = ranks + (step + i) % 16 * 4 * kMaxHeadDim + (step + i) / 16 * 16;
        for (int d = 0; d < 16; ++d) {
          for (int j = 0; j < 4; ++j) steps[64 * i + 4 * d + j] = from[j * kMaxHeadDim + d];
        }
      }
      put_pack(steps, pack_of(page, step));
    }
  }

  QUIRE_INLINE float centroid(const Codebook& book, int rank) { return book.centroids[rank_of(rank)]; }

  QUIRE_INLINE void decode_key_row(const uint8_t* page, int head_dim, int row, const Codebook& book,
                                   float* out) {
    const float norm = get_half(page + 2 * row);
    for (int d = 0; d < head_dim; ++d) {
      out[d] = norm * centroid(book, get_rank(page, key_step(head_dim, row, d), key_position(row, d)));
    }
  }

  QUIRE_INLINE void decode_value_row(const uint8_t* page, int head_dim, int row, const Codebook& book,
                                     float* out) {
    const float norm = get_half(page + 2 * row);
    for (int d = 0; d < head_dim; ++d) {
      out[d] = norm * centroid(book, get_rank(page, value_step(row, d), value_position(row, d)));
    }
  }
};

}  // namespace quire
