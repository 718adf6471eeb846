// Codes of 1, 2, 3, 4 or 8 bits of a page's values, in the order that kernels read them: a register of 64
// bytes is filled by one load, and byte dot products need no sum across lanes.
//
// Keys, in quads of four dims, Q = ceil(head_dim / 4) rounded up to whole packs. Step s = 16 tokens and one
// quad:
//
//   a step's 64 codes: position 4 t + j is token t of the sixteen, dim j of the quad
//
// Values, in quads of four tokens. Step s = 16 dims and one quad of tokens, D16 = ceil(head_dim / 16) of
// dims:
//
//   a step's 64 codes: position 4 d + j is dim d of the sixteen, token j of the quad
//
// Codes of steps are packed together, `kSteps` steps in a pack, so that unpacking is a shift and a mask:
//
//   8 bits: 64 bytes = 1 step
//   4 bits: 64 bytes = 2 steps, step i in bits 4 i..4 i + 3 of each byte
//   2 bits: 64 bytes = 4 steps, step i in bits 2 i..2 i + 1
//   1 bit:  64 bytes = 8 steps, step i in bit i
//   3 bits: 64 bytes = 4 steps as 2 bits hold the two upper ones, then 4 words of 64 bits with the lowest bit
//
// Keys: steps in the order sixteen-token block, then quad; values: dim block, then quad of tokens. Dims past
// head_dim are coded 0 and count for nothing (queries are 0 there, outputs are not kept).
#pragma once

#include <stdint.h>
#include <string.h>

#include "format/code_format.h"
#include "format/code_parts.h"

namespace quire {

template <int bits>
struct PanelCodes {
  static_assert(bits == 8 || (bits >= 1 && bits <= 4));
  static constexpr int kBits = bits;
  static constexpr int kSteps = bits == 3 ? 4 : 8 / bits;      // of a pack
  static constexpr int kPackBytes = bits == 3 ? 64 + 32 : 64;  // of kSteps steps

  // Quads of dims of a key, padded so that the steps of sixteen tokens fill whole packs.
  static constexpr int key_quads(int head_dim) { return ((head_dim + 3) / 4 + kSteps - 1) / kSteps * kSteps; }
  static constexpr int dim_blocks(int head_dim) { return (head_dim + 15) / 16; }
  // Of the packs of one block: 16 tokens of the keys, 16 dims of the values.
  static constexpr int key_block_bytes(int head_dim) { return key_quads(head_dim) / kSteps * kPackBytes; }
  static constexpr int kValueBlockBytes = 16 / kSteps * kPackBytes;

  static constexpr int key_bytes(int head_dim) { return 4 * key_block_bytes(head_dim); }
  static constexpr int value_bytes(int head_dim) { return dim_blocks(head_dim) * kValueBlockBytes; }

  // steps [kSteps][64] of codes -> one pack.
  QUIRE_INLINE void put_pack(const uint8_t* steps, uint8_t* pack) {
    constexpr int shift = bits == 3 ? 2 : bits;
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

  // codes [64][kMaxHeadDim], zeros behind head_dim -> packs
  QUIRE_INLINE void put_keys(const uint8_t* codes, int head_dim, uint8_t* packs) {
    for (int step = 0; step < 4 * key_quads(head_dim); step += kSteps) {
      uint8_t steps[64 * kSteps];
      for (int i = 0; i < kSteps; ++i) {
        const uint8_t* from = codes + (step + i) / key_quads(head_dim) * 16 * kMaxHeadDim;
        const int quad = (step + i) % key_quads(head_dim);
        for (int t = 0; t < 16; ++t) {
          // The padding quads of head sizes up to kMaxHeadDim stay within a row's kMaxHeadDim codes.
          memcpy(steps + 64 * i + 4 * t, from + t * kMaxHeadDim + 4 * quad, 4);
        }
      }
      put_pack(steps, packs + step / kSteps * kPackBytes);
    }
  }

  QUIRE_INLINE void put_values(const uint8_t* codes, int head_dim, uint8_t* packs) {
    for (int step = 0; step < 16 * dim_blocks(head_dim); step += kSteps) {
      uint8_t steps[64 * kSteps];
      for (int i = 0; i < kSteps; ++i) {
        const uint8_t* from = codes + (step + i) % 16 * 4 * kMaxHeadDim + (step + i) / 16 * 16;
        for (int d = 0; d < 16; ++d) {
          for (int j = 0; j < 4; ++j) steps[64 * i + 4 * d + j] = from[j * kMaxHeadDim + d];
        }
      }
      put_pack(steps, packs + step / kSteps * kPackBytes);
    }
  }

  QUIRE_INLINE int get(const uint8_t* packs, int step, int position) {
    const uint8_t* pack = packs + step / kSteps * kPackBytes;
    const int i = step % kSteps;
    if constexpr (bits == 3) {
      const int low = (pack[64 + 8 * i + position / 8] >> (position % 8)) & 1;
      return ((pack[position] >> (2 * i)) & 3) << 1 | low;
    }
    return (pack[position] >> (bits * i)) & ((1 << bits) - 1);
  }

  QUIRE_INLINE int get_key(const uint8_t* packs, int head_dim, int row, int d) {
    return get(packs, row / 16 * key_quads(head_dim) + d / 4, 4 * (row % 16) + d % 4);
  }
  QUIRE_INLINE int get_value(const uint8_t* packs, int row, int d) {
    return get(packs, d / 16 * 16 + row / 4, 4 * (d % 16) + row % 4);
  }
};

}  // namespace quire
