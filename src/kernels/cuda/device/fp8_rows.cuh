// Pages of exact rows of 8-bit floats (base/fp8.h), [64 tokens][head_dim] on the device, as attention kernels
// read them: numbers become f16, which holds all of them, in registers.
//
// A register of an 8 x 8 matrix (ldmatrix) has four numbers here. Of keys they are four dims of one token,
// taken as columns 2 c, 2 c + 1 and 2 c + 8, 2 c + 9 of a step; queries come in the same order. Of values,
// turned over, they are two dims of two tokens, of which the first dims make one row of products and the
// second ones the row eight further.
#pragma once

#include "kernels/cuda/device/streamed_rows.cuh"

namespace quire::cuda {

// Two numbers, the first one low. Below sm_89 a NaN becomes +-480.
__device__ __forceinline__ uint32_t half_pair(uint32_t two) {
#if __CUDA_ARCH__ >= 890
  uint32_t halves;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"((uint16_t)two));
  return halves;
#else
  // In the places of an f16's bits they say 1/256 of the number, subnormal ones too.
  const uint32_t apart = __byte_perm(two, 0, 0x1404);
  const uint32_t small = (apart & 0x80008000u) | ((apart >> 1) & 0x3f803f80u);
  const __half2 pair = __hmul2(*reinterpret_cast<const __half2*>(&small), __float2half2_rn(256.0f));
  return *reinterpret_cast<const uint32_t*>(&pair);
#endif
}

// `Lines` says where 16 bytes of a row lie in shared memory: offset(row, piece).
template <class Lines, int kHeadDim_>
struct Fp8Products : RowTiles<__half, kHeadDim_> {
  using Tiles = RowTiles<__half, kHeadDim_>;
  using Tiles::kHeadDim, Tiles::kTokenTiles, Tiles::kQuerySteps, Tiles::kOutTiles;
  using typename Tiles::Number;

  static __device__ int query_dim(int step, int c, int e) { return 16 * step + 4 * c + e; }
  static __device__ int out_dim(int tile, int half, int g) { return 16 * tile + 2 * g + half; }

  // Where this lane's row of the matrices of pieces `piece` and the one after it begins; there may be no
  // other.
  static __device__ uint32_t matrix_row(uint32_t rows, int piece) {
    const int lane = lane_index();
    return rows + Lines::offset(lane % 16, min(piece + lane / 16, kHeadDim / 16 - 1));
  }

  static __device__ void score(const uint8_t* tile, const uint32_t (&q)[kQuerySteps][2],
                               float (&s)[kTokenTiles][4]) {
    const uint32_t rows = shared_address(tile);
    float other[4] = {0.0f, 0.0f, 0.0f, 0.0f};  // a shorter chain of sums
#pragma unroll
    for (int step = 0; step < kQuerySteps; step += 2) {
      uint32_t m[4];
      load_matrices(m, matrix_row(rows, step));
      const uint32_t a[4] = {half_pair(m[0]), half_pair(m[1]), half_pair(m[0] >> 16), half_pair(m[1] >> 16)};
      multiply_add(Number{}, s[0], a, q[step]);
      if (step + 1 < kQuerySteps) {
        const uint32_t b[4] = {half_pair(m[2]), half_pair(m[3]), half_pair(m[2] >> 16),
                               half_pair(m[3] >> 16)};
        multiply_add(Number{}, other, b, q[step + 1 < kQuerySteps ? step + 1 : step]);
      }
    }
#pragma unroll
    for (int e = 0; e < 4; ++e) s[0][e] += other[e];
  }

  // A matrix's first dims of two tokens, then their second dims.
  static __device__ void add_tile(uint32_t first_tokens, uint32_t other_tokens, const uint32_t (&p)[2],
                                  float (&o)[4]) {
    const uint32_t x = __byte_perm(first_tokens, 0, 0x3120);
    const uint32_t y = __byte_perm(other_tokens, 0, 0x3120);
    const uint32_t a[4] = {half_pair(x), half_pair(x >> 16), half_pair(y), half_pair(y >> 16)};
    multiply_add(Number{}, o, a, p);
  }
  static __device__ void accumulate(const uint8_t* tile, const uint32_t (&p)[kTokenTiles][2],
                                    float (&o)[kOutTiles][4]) {
    const uint32_t rows = shared_address(tile);
#pragma unroll
    for (int t = 0; t < kOutTiles; t += 2) {
      uint32_t m[4];
      load_transposed_matrices(m, matrix_row(rows, t));
      add_tile(m[0], m[1], p[0], o[t]);
      if (t + 1 < kOutTiles) add_tile(m[2], m[3], p[0], o[t + 1 < kOutTiles ? t + 1 : t]);
    }
  }
};

// For streamed_attention.cuh.
template <int kHeadDim_>
struct StreamedFp8Rows : Fp8Products<StreamedBox<kHeadDim_>, kHeadDim_> {
  using Box = StreamedBox<kHeadDim_>;
};

// Rows 16 bytes further apart than they are long.
template <int kRowBytes>
struct PaddedLines {
  static constexpr int kStride = kRowBytes + 16;
  static __device__ int offset(int row, int piece) { return row * kStride + piece * 16; }
};

// For decode_attention.cuh.
template <int kHeadDim_>
struct Fp8Rows : Fp8Products<PaddedLines<kHeadDim_>, kHeadDim_> {
  using Lines = PaddedLines<kHeadDim_>;
  static constexpr int kMostWarps = 6;       // of a block
  static constexpr int kResidentBlocks = 2;  // of a multiprocessor
  static constexpr int kKeyStageBytes = 16 * Lines::kStride;
  static constexpr int kValueStageBytes = kKeyStageBytes;
  static constexpr int kTableBytes = 0;

  static __device__ void make_tables(const typename Fp8Products<Lines, kHeadDim_>::Tables&) {}

  // Rows that no token has become zeros.
  static __device__ void stage_rows(uint32_t stage, const uint8_t* page, int first_row, int n_rows) {
    constexpr int kPieces = kHeadDim_ / 16;
    const uint8_t* rows = page + first_row * kHeadDim_;
    for (int piece = lane_index(); piece < 16 * kPieces; piece += 32) {
      const int row = piece / kPieces;
      copy_ahead(stage + Lines::offset(row, piece % kPieces), rows + piece * 16, row < n_rows ? 16 : 0);
    }
  }
  static __device__ void stage_keys(uint32_t stage, const uint8_t* page, int first_row, int n_rows) {
    stage_rows(stage, page, first_row, n_rows);
  }
  static __device__ void stage_values(uint32_t stage, const uint8_t* page, int first_row, int n_rows) {
    stage_rows(stage, page, first_row, n_rows);
  }
};

}  // namespace quire::cuda
