// Sealed pages of q8, q4, kivi2 and kivi4 (format/group_codes.h, format/kivi.h), byte for byte as the CPU
// writes them, as decode_attention.cuh reads them. A tile is a page.
//
// A number is offset + scale (code - zero). It is made in f16, two at a time, and rounded once, as a row of
// f16 would be. Scales and offsets belong to a token and 32 dims, or (keys of kivi) to a dim and 32 tokens.
//
// A 32-bit word of a pack (format/panel_codes.h) holds four numbers along which products sum, of each of the
// pack's steps: dims of one token in keys, tokens of one dim in values. So lane 4 g + c takes quad c of every
// 16 numbers of depth, numbers 0 and 1 of it as the first pair of a factor and 2 and 3 as the second:
//
//   keys      step s: dims 16 s + 4 c .. + 3, of the tokens that the lane's rows stand for
//   values    tile t: tokens 16 t + 4 c .. + 3, of dims g and g + 8
//
// and the rows of scores are tokens in that order too (token_in_tile).
#pragma once

#include "format/group_codes.h"
#include "format/kivi.h"
#include "kernels/cuda/device/warp.cuh"

namespace quire::cuda {

// Two factors of neighbouring depth: offset + scale (code - zero).
struct HalfRange {
  __half2 scale;
  __half2 offset;
};

__device__ __forceinline__ __half2 two_halves(const uint8_t* at) {
  return *reinterpret_cast<const __half2*>(at);
}
__device__ __forceinline__ __half2 one_half_twice(const uint8_t* at) {
  return __half2half2(*reinterpret_cast<const __half*>(at));
}

// Where scales and offsets of a format lie in a page: GroupRanges, KiviRanges.

template <class Group, int kHeadDim>
struct GroupRanges {
  static constexpr int kBits = Group::kBits;
  static constexpr int kZero = Group::kZero;
  static constexpr bool kOffsets = false;
  static constexpr int kKeyRangeBytes = 2 * kPageRows * group_count(kHeadDim);
  static constexpr int kValueRangeBytes = kKeyRangeBytes;

  // Of the keys of a token, dims 16 step + 4 c + 2 pair and the next.
  static __device__ HalfRange of_keys(const uint8_t* page, int token, int step, int, int) {
    return {one_half_twice(page + 2 * (step / 2 * kPageRows + token)), __half2half2(__half{})};
  }
  // Of the values of two tokens from the first on, dims of block `block` of 16.
  static __device__ HalfRange of_values(const uint8_t* page, int token, int block) {
    return {two_halves(page + 2 * (block / 2 * kPageRows + token)), __half2half2(__half{})};
  }
};

template <int kBits_, int kHeadDim>
struct KiviRanges {
  static constexpr int kBits = kBits_;
  static constexpr int kZero = 0;
  static constexpr bool kOffsets = true;
  static constexpr int kKeyRangeBytes = kPageRows / 32 * 4 * kHeadDim;
  static constexpr int kValueZeros = 2 * kPageRows * group_count(kHeadDim);
  static constexpr int kValueRangeBytes = 2 * kValueZeros;

  static __device__ HalfRange of_keys(const uint8_t* page, int token, int step, int c, int pair) {
    const uint8_t* scales = page + token / 32 * 4 * kHeadDim + 2 * (16 * step + 4 * c + 2 * pair);
    return {two_halves(scales), two_halves(scales + 2 * kHeadDim)};
  }
  static __device__ HalfRange of_values(const uint8_t* page, int token, int block) {
    const uint8_t* scales = page + 2 * (block / 2 * kPageRows + token);
    return {two_halves(scales), two_halves(scales + kValueZeros)};
  }
};

// Ranges: GroupRanges or KiviRanges.
template <class Ranges, int kHeadDim_>
struct PanelRows {
  using Number = __half;
  using Panel = PanelCodes<Ranges::kBits>;
  static constexpr int kBits = Ranges::kBits;
  static constexpr int kHeadDim = kHeadDim_;
  static_assert(kHeadDim % 16 == 0);
  static constexpr int kMostWarps = kBits == 8 ? 6 : kHeadDim > 128 ? 8 : 12;  // of a block
  static constexpr int kResidentBlocks = 1;                                    // of a multiprocessor
  static constexpr int kTileTokens = kPageRows;
  static constexpr int kTokenTiles = 4;
  static constexpr int kQuerySteps = kHeadDim / 16;
  static constexpr int kOutTiles = kHeadDim / 16;
  static constexpr int kQuads = Panel::key_quads(kHeadDim);
  static constexpr int kKeyPageBytes = Ranges::kKeyRangeBytes + Panel::key_bytes(kHeadDim);
  static constexpr int kValuePageBytes = Ranges::kValueRangeBytes + Panel::value_bytes(kHeadDim);
  static constexpr int kKeyStageBytes = (kKeyPageBytes + 127) / 128 * 128;
  static constexpr int kValueStageBytes = (kValuePageBytes + 127) / 128 * 128;
  static constexpr int kTableBytes = 0;

  struct Tables {};
  struct ValueScale {};

  static __device__ void make_tables(const Tables&) {}

  static __device__ int query_dim(int step, int c, int e) { return 16 * step + 4 * c + e; }
  static __device__ int token_in_tile(int tile, int half, int g) {
    return 16 * tile + 4 * (g / 2) + 2 * half + g % 2;
  }
  static __device__ int out_dim(int tile, int half, int g) { return 16 * tile + 8 * half + g; }

  static __device__ void stage_keys(uint32_t stage, const uint8_t* page, int, int) {
    for (int piece = lane_index(); piece < kKeyPageBytes / 16; piece += 32) {
      copy_ahead(stage + 16 * piece, page + 16 * piece);
    }
  }
  // Ranges of rows that no token has become zeros: what memory holds there may be NaN.
  static __device__ void stage_values(uint32_t stage, const uint8_t* page, int, int n_rows) {
    for (int piece = lane_index(); piece < kValuePageBytes / 16; piece += 32) {
      const int n_bytes = 16 * piece < Ranges::kValueRangeBytes ? 2 * (n_rows - 8 * piece % kPageRows) : 16;
      copy_ahead(stage + 16 * piece, page + 16 * piece, max(min(n_bytes, 16), 0));
    }
  }

  // Word `word` of a step of 64 codes: four codes, one a byte.
  static __device__ uint32_t four_codes(const uint8_t* packs, int step, int word) {
    const uint8_t* pack = packs + step / Panel::kSteps * Panel::kPackBytes;
    const uint32_t bits = *reinterpret_cast<const uint32_t*>(pack + 4 * word);
    if constexpr (kBits == 8) return bits;
    return bits >> (kBits * (step % Panel::kSteps)) & (kBits == 4 ? 0x0f0f0f0fu : 0x03030303u);
  }

  // Two of four codes as numbers. f16 has 1024 + code as 0x6400 | code.
  static __device__ uint32_t numbers(uint32_t codes, int pair, const HalfRange& range) {
    const uint32_t bits = __byte_perm(codes, 0x64646464u, pair == 0 ? 0x4140 : 0x4342);
    const __half2 code =
        __hsub2(*reinterpret_cast<const __half2*>(&bits), __float2half2_rn(1024.0f + Ranges::kZero));
    const __half2 x =
        Ranges::kOffsets ? __hfma2(range.scale, code, range.offset) : __hmul2(range.scale, code);
    return *reinterpret_cast<const uint32_t*>(&x);
  }

  static __device__ void score(const uint8_t* stage, const uint32_t (&q)[kQuerySteps][2],
                               float (&s)[kTokenTiles][4]) {
    const int g = lane_index() / 4;
    const int c = lane_index() % 4;
    const uint8_t* packs = stage + Ranges::kKeyRangeBytes;
#pragma unroll
    for (int step = 0; step < kQuerySteps; ++step) {
#pragma unroll
      for (int tile = 0; tile < kTokenTiles; ++tile) {
        uint32_t a[4];
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int token = token_in_tile(tile, half, g);
          const uint32_t codes = four_codes(packs, tile * kQuads + 4 * step + c, token % 16);
#pragma unroll
          for (int pair = 0; pair < 2; ++pair) {
            a[half + 2 * pair] = numbers(codes, pair, Ranges::of_keys(stage, token, step, c, pair));
          }
        }
        multiply_add(Number{}, s[tile], a, q[step]);
      }
    }
  }

  static __device__ float weigh(const uint8_t*, float (&)[kTokenTiles][4], ValueScale&, int) { return 1.0f; }

  static __device__ void accumulate(const uint8_t* stage, const uint32_t (&p)[kTokenTiles][2],
                                    float (&o)[kOutTiles][4]) {
    const int g = lane_index() / 4;
    const int c = lane_index() % 4;
    const uint8_t* packs = stage + Ranges::kValueRangeBytes;
#pragma unroll
    for (int block = 0; block < kOutTiles; ++block) {
#pragma unroll
      for (int tile = 0; tile < kTokenTiles; ++tile) {
        uint32_t codes[2];  // of dims g and g + 8
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          codes[half] = four_codes(packs, 16 * block + 4 * tile + c, g + 8 * half);
        }
        uint32_t a[4];
#pragma unroll
        for (int pair = 0; pair < 2; ++pair) {
          const HalfRange range = Ranges::of_values(stage, 16 * tile + 4 * c + 2 * pair, block);
          a[2 * pair] = numbers(codes[0], pair, range);
          a[2 * pair + 1] = numbers(codes[1], pair, range);
        }
        multiply_add(Number{}, o[block], a, p[tile]);
      }
    }
  }

  static __device__ float value_unit(const ValueScale&) { return 1.0f; }
};

}  // namespace quire::cuda
