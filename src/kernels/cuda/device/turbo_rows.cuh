// Sealed pages of turbo2, turbo3 and turbo4 (format/turbo_panel.h), byte for byte as the CPU writes them, as
// decode_attention.cuh reads them. A tile is a page.
//
// The order of bytes that byte products like is the one that tensor cores need. A pack holds 16 rows times 8
// (4 bits) or 16 (2 and 3 bits) numbers along which products sum ("depth": dims of keys, tokens of values),
// and a 32-bit word of it one row:
//
//   word of row r   byte j: depth j and j + 4 in the two halves of the byte (4 bits), or j, j + 4, j + 8, j +
//   12
//
// A lane needs for its row two numbers of neighbouring depth in one register. Depth may be permuted at will,
// as long as both factors are alike: so the two numbers of a register are j and j + 4, which one byte holds,
// and a byte is looked up in a table of pairs. Lane 4 g + c takes four rows at once, 16 bytes, and of every
// 64 numbers of depth those from 16 c on:
//
//   step 2 h + i of four   numbers 16 c + 8 h + 2 i + {0, 4} and + {1, 5}     h, i: 0, 1
//
// The table has a row of 32 equal entries for every byte, one for each lane, and so no bank is asked twice:
// entry (byte, lane) at 256 byte + 4 lane for keys, 128 further for values.
//
// Norms: a key's scales its score; a value's its probability, relative to a power of two above the norms of
// the pages seen, so that the product is at most 1 and fits f16.
#pragma once

#include "format/turbo_panel.h"
#include "kernels/cuda/device/warp.cuh"

namespace quire::cuda {

// Centroids by rank, rising; as f16.
struct TurboTables {
  uint16_t keys[16];
  uint16_t values[16];
};

// Reads codes of `kBits` bits of one side of a page out of shared memory.
template <int kBits>
struct TurboCodes {
  static constexpr int kPackBytes = PanelCodes<kBits>::kPackBytes;
  static constexpr int kPackDepth = kBits == 4 ? 8 : 16;
  static constexpr int kTableRows = kBits == 4 ? 256 : kBits == 3 ? 64 : 16;

  // Pieces of 16 bytes change places so that eight lanes that load at once find theirs in eight different
  // banks; packs of 3 bits do so by themselves.
  static __device__ int placed(int piece) { return kBits == 3 ? piece : piece ^ (piece >> 3 & 3) << 1; }

  static __device__ uint4 load(const uint8_t* codes, int piece) {
    return *reinterpret_cast<const uint4*>(codes + 16 * placed(piece));
  }

  // The bytes to look up: index[h][row], of four rows (`quarter` of a pack's 16) and the 16 numbers of depth
  // from 16 `depth` on, in a block of `packs` packs.
  static __device__ void indices(const uint8_t* codes, int block, int packs, int depth, int quarter,
                                 uint32_t (&index)[2][4]) {
    if constexpr (kBits == 4) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const uint4 w = load(codes, (block * packs + 2 * depth + h) * 4 + quarter);
        index[h][0] = w.x, index[h][1] = w.y, index[h][2] = w.z, index[h][3] = w.w;
      }
    } else if constexpr (kBits == 2) {
      const uint4 w = load(codes, (block * packs + depth) * 4 + quarter);
      const uint32_t rows[4] = {w.x, w.y, w.z, w.w};
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        index[0][r] = rows[r] & 0x0f0f0f0fu;
        index[1][r] = rows[r] >> 4 & 0x0f0f0f0fu;
      }
    } else {
      three_bit_indices(codes, block * packs + depth, quarter, index);
    }
  }

  // A byte: upper two bits of both numbers, then the lowest bit of the first and of the second.
  static __device__ void three_bit_indices(const uint8_t* codes, int pack, int quarter,
                                           uint32_t (&index)[2][4]) {
    const uint4 w = load(codes, 6 * pack + quarter);
    const uint32_t rows[4] = {w.x, w.y, w.z, w.w};
    const uint8_t* low = codes + kPackBytes * pack + 64 + 2 * quarter;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      // Four bits a row and step; the product puts bit j of them into byte j.
      const uint32_t first = *reinterpret_cast<const uint16_t*>(low + 16 * h);
      const uint32_t second = *reinterpret_cast<const uint16_t*>(low + 16 * h + 8);
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        const uint32_t upper = rows[r] >> (4 * h) & 0x0f0f0f0fu;
        const uint32_t a = (first >> (4 * r) & 15) * 0x02040810u & 0x10101010u;
        const uint32_t b = (second >> (4 * r) & 15) * 0x04081020u & 0x20202020u;
        index[h][r] = upper | a | b;
      }
    }
  }

  // The ranks that byte `index` stands for, as two centroids.
  static __device__ uint32_t pair(int index, const uint16_t* centroids) {
    int first, second;
    if constexpr (kBits == 4) {
      first = index & 15, second = index >> 4;
    } else if constexpr (kBits == 3) {
      first = (index & 3) << 1 | (index >> 4 & 1), second = (index >> 2 & 3) << 1 | (index >> 5 & 1);
    } else {
      first = index & 3, second = index >> 2;
    }
    return centroids[first] | (uint32_t)centroids[second] << 16;
  }

  // column: 0 for keys, 128 for values.
  static __device__ void make_table(uint8_t* table, int column, const uint16_t* centroids) {
    const int n_warps = (int)blockDim.x / 32;
    for (int row = warp_index(); row < kTableRows; row += n_warps) {
      *reinterpret_cast<uint32_t*>(table + 256 * row + column + 4 * lane_index()) = pair(row, centroids);
    }
  }

  // The factors of step 2 h + i for rows 2 m and 2 m + 1 of four. `lane`: column + 4 lane_index().
  static __device__ void look_up(const uint8_t* table, uint32_t lane, const uint32_t (&rows)[4], int m, int i,
                                 uint32_t (&a)[4]) {
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      // Byte 2 i + k / 2 of the row times 256, plus lane.
      const uint32_t at = __byte_perm(rows[2 * m + k % 2], lane, 0x5504 | (2 * i + k / 2) << 4);
      a[k] = *reinterpret_cast<const uint32_t*>(table + at);
    }
  }
};

constexpr int rounded_up(int n, int to) { return (n + to - 1) / to * to; }

template <int kKeyBits, int kValueBits, int kHeadDim_>
struct TurboRows {
  using Number = __half;
  using Tables = TurboTables;
  using Keys = TurboCodes<kKeyBits>;
  using Values = TurboCodes<kValueBits>;
  static constexpr int kHeadDim = kHeadDim_;
  static constexpr int kMostWarps = kHeadDim > 128 ? 8 : 12;  // of a block
  static constexpr int kResidentBlocks = 1;                   // of a multiprocessor
  static constexpr int kTileTokens = kPageRows;
  static constexpr int kTokenTiles = 4;
  static constexpr int kDepths = (kHeadDim + 63) / 64;  // of keys, four lanes times 16 dims each
  static constexpr int kQuerySteps = 4 * kDepths;
  static constexpr int kRowBlocks = (kHeadDim + 31) / 32;  // of values
  static constexpr int kOutTiles = 2 * kRowBlocks;
  static constexpr int kKeyPacks = PanelCodes<kKeyBits>::key_quads(kHeadDim) / PanelCodes<kKeyBits>::kSteps;
  static constexpr int kValuePacks = kPageRows / Values::kPackDepth;  // of 16 dims
  static constexpr int kKeyCodeBytes = PanelCodes<kKeyBits>::key_bytes(kHeadDim);
  static constexpr int kValueCodeBytes = PanelCodes<kValueBits>::value_bytes(kHeadDim);
  static constexpr int kNormBytes = 2 * kPageRows;
  // Norms, codes, and room behind them that lanes look at for dims that a head does not have.
  static constexpr int kSlack = kHeadDim % 64 == 0 ? 0 : 1024;
  static constexpr int kKeyStageBytes = rounded_up(kNormBytes + kKeyCodeBytes + kSlack, 128);
  static constexpr int kValueStageBytes = rounded_up(kNormBytes + kValueCodeBytes + kSlack, 128);
  static constexpr int kTableRows =
      Keys::kTableRows > Values::kTableRows ? Keys::kTableRows : Values::kTableRows;
  static constexpr int kTableBytes = 256 * kTableRows;

  // Exponent of the power of two above the norms of values seen.
  struct ValueScale {
    int exponent = -64;
  };

  static __device__ void make_tables(const Tables& tables) {
    Keys::make_table(shared_memory(), 0, tables.keys);
    Values::make_table(shared_memory(), 128, tables.values);
  }

  static __device__ int query_dim(int step, int c, int e) {
    return 16 * (step / 4 * 4 + c) + step % 4 / 2 * 8 + step % 2 * 2 + e / 2 + 4 * (e % 2);
  }
  static __device__ int token_in_tile(int tile, int half, int g) {
    return 16 * (g / 2) + 4 * (g % 2) + 8 * (tile / 2) + 2 * (tile % 2) + half;
  }
  static __device__ int out_dim(int tile, int half, int g) {
    return 32 * (tile / 2) + 4 * g + 2 * (tile % 2) + half;
  }

  template <class Codes, int kCodeBytes>
  static __device__ void stage_page(uint32_t stage, const uint8_t* page) {
    constexpr int kPieces = (kNormBytes + kCodeBytes) / 16;
    constexpr int kNormPieces = kNormBytes / 16;
#pragma unroll
    for (int i = 0; i < (kPieces + 31) / 32; ++i) {
      const int piece = 32 * i + lane_index();
      const int code = Codes::placed(piece - kNormPieces);
      const int to = i == 0 && piece < kNormPieces ? piece : kNormPieces + code;
      if (kPieces % 32 == 0 || i < kPieces / 32 || piece < kPieces)
        copy_ahead(stage + 16 * to, page + 16 * piece);
    }
  }
  static __device__ void stage_keys(uint32_t stage, const uint8_t* page, int, int) {
    stage_page<Keys, kKeyCodeBytes>(stage, page);
  }
  static __device__ void stage_values(uint32_t stage, const uint8_t* page, int, int) {
    stage_page<Values, kValueCodeBytes>(stage, page);
  }

  // Norms of four tokens from the first on.
  static __device__ uint2 norms_of(const uint8_t* stage, int token) {
    return *reinterpret_cast<const uint2*>(stage + 2 * token);
  }
  static __device__ uint32_t norm_bits(uint2 four, int i) {
    return ((i < 2 ? four.x : four.y) >> (i % 2 * 16)) & 0xffffu;
  }
  static __device__ float to_float(uint32_t half_bits) {
    return __half2float(__ushort_as_half((uint16_t)half_bits));
  }

  static __device__ void score(const uint8_t* stage, const uint32_t (&q)[kQuerySteps][2],
                               float (&s)[kTokenTiles][4]) {
    const int g = lane_index() / 4;
    const int c = lane_index() % 4;
    const uint32_t lane = 4 * lane_index();
#pragma unroll
    for (int depth = 0; depth < kDepths; ++depth) {
#pragma unroll
      for (int quarter = 0; quarter < 2; ++quarter) {
        uint32_t index[2][4];
        Keys::indices(stage + kNormBytes, g / 2, kKeyPacks, 4 * depth + c, g % 2 + 2 * quarter, index);
#pragma unroll
        for (int step = 0; step < 4; ++step) {
#pragma unroll
          for (int m = 0; m < 2; ++m) {
            uint32_t a[4];
            Keys::look_up(shared_memory(), lane, index[step / 2], m, step % 2, a);
            multiply_add(Number{}, s[2 * quarter + m], a, q[4 * depth + step]);
          }
        }
      }
    }
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const uint2 norms = norms_of(stage, token_in_tile(2 * h, 0, g));
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float norm = to_float(norm_bits(norms, i));
        s[2 * h + i / 2][2 * (i % 2)] *= norm;
        s[2 * h + i / 2][2 * (i % 2) + 1] *= norm;
      }
    }
  }

  // Probabilities times the norms of the values; returns what outputs so far must be multiplied by. Norms of
  // rows that no token has may be NaN.
  static __device__ float weigh(const uint8_t* stage, float (&p)[kTokenTiles][4], ValueScale& scale,
                                int n_rows) {
    const int g = lane_index() / 4;
    uint32_t bits[8];
    uint32_t largest = 0;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int first = token_in_tile(2 * h, 0, g);
      const uint2 norms = norms_of(stage, first);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        bits[4 * h + i] = first + i < n_rows ? norm_bits(norms, i) : 0;
        largest = max(largest, bits[4 * h + i]);
      }
    }
    const int exponent = (int)(__reduce_max_sync(kAllLanes, largest) >> 10) - 14;
    const int raised = max(exponent, scale.exponent);
    const float correction = __int_as_float((max(scale.exponent - raised, -126) + 127) << 23);
    scale.exponent = raised;
    const float unit = __int_as_float((127 - raised) << 23);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const float norm = to_float(bits[i]) * unit;
      p[i / 2][2 * (i % 2)] *= norm;
      p[i / 2][2 * (i % 2) + 1] *= norm;
    }
    return correction;
  }

  static __device__ void accumulate(const uint8_t* stage, const uint32_t (&p)[kTokenTiles][2],
                                    float (&o)[kOutTiles][4]) {
    const int g = lane_index() / 4;
    const int c = lane_index() % 4;
    const uint32_t lane = 128 + 4 * lane_index();
#pragma unroll
    for (int rows = 0; rows < kRowBlocks; ++rows) {
      uint32_t index[2][4];
      Values::indices(stage + kNormBytes, 2 * rows + g / 4, kValuePacks, c, g % 4, index);
#pragma unroll
      for (int step = 0; step < 4; ++step) {
#pragma unroll
        for (int m = 0; m < 2; ++m) {
          uint32_t a[4];
          Values::look_up(shared_memory(), lane, index[step / 2], m, step % 2, a);
          multiply_add(Number{}, o[2 * rows + m], a, p[step]);
        }
      }
    }
  }

  static __device__ float value_unit(const ValueScale& scale) {
    return __int_as_float((scale.exponent + 127) << 23);
  }
};

}  // namespace quire::cuda
