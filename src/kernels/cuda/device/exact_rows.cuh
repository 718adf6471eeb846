// Pages of exact rows, f16 or bf16, as decode_attention.cuh reads them.
//
// On the device a page of one KV head has its keys as [64 tokens][head_dim] and its values likewise: rows are
// written as they come and whole rows are what the tensor cores take. (Open pages of the CPU have keys as
// [head_dim][64], ADR 2.)
//
// Tiles of 16 tokens. In shared memory rows are 16 bytes further apart than they are long: eight rows at the
// same dims then lie in different banks for every head size.
#pragma once

#include "kernels/cuda/device/row_tiles.cuh"

namespace quire::cuda {

template <class Number_, int kHeadDim_>
struct ExactRows : RowTiles<Number_, kHeadDim_> {
  using Tiles = RowTiles<Number_, kHeadDim_>;
  using Tiles::kHeadDim, Tiles::kTokenTiles, Tiles::kQuerySteps, Tiles::kOutTiles;
  using Tiles::kTileTokens;
  using typename Tiles::Number;
  static constexpr int kMostWarps = 6;       // of a block
  static constexpr int kResidentBlocks = 2;  // of a multiprocessor
  static constexpr int kRowBytes = 2 * kHeadDim;
  static constexpr int kStride = kRowBytes + 16;
  static constexpr int kKeyStageBytes = kTileTokens * kStride;
  static constexpr int kValueStageBytes = kTileTokens * kStride;
  static constexpr int kTableBytes = 0;

  static __device__ void make_tables(const typename Tiles::Tables&) {}

  // Dim of number e of a lane's part of step `step` of the queries (warp.cuh: b of multiply_add).
  static __device__ int query_dim(int step, int c, int e) { return 16 * step + 2 * c + e % 2 + 8 * (e / 2); }
  static __device__ int out_dim(int tile, int half, int g) { return 16 * tile + 8 * half + g; }

  // page: the KV head's keys or values. Rows that no token has become zeros: what memory holds there may be
  // NaN.
  static __device__ void stage_rows(uint32_t stage, const uint8_t* page, int first_row, int n_rows) {
    constexpr int kPieces = kRowBytes / 16;
    const uint8_t* rows = page + first_row * kRowBytes;
    if (n_rows >= kTileTokens) return stage_whole_tile(stage, rows);
#pragma unroll
    for (int i = 0; i < kTileTokens * kPieces / 32; ++i) {
      const int piece = 32 * i + lane_index();
      const int row = piece / kPieces;
      copy_ahead(stage + row * kStride + piece % kPieces * 16, rows + piece * 16, row < n_rows ? 16 : 0);
    }
  }
  static __device__ void stage_whole_tile(uint32_t stage, const uint8_t* rows) {
    constexpr int kPieces = kRowBytes / 16;
#pragma unroll
    for (int i = 0; i < kTileTokens * kPieces / 32; ++i) {
      const int piece = 32 * i + lane_index();
      copy_ahead(stage + piece / kPieces * kStride + piece % kPieces * 16, rows + piece * 16);
    }
  }
  static __device__ void stage_keys(uint32_t stage, const uint8_t* page, int first_row, int n_rows) {
    stage_rows(stage, page, first_row, n_rows);
  }
  static __device__ void stage_values(uint32_t stage, const uint8_t* page, int first_row, int n_rows) {
    stage_rows(stage, page, first_row, n_rows);
  }

  static __device__ void score(const uint8_t* stage, const uint32_t (&q)[kQuerySteps][2],
                               float (&s)[kTokenTiles][4]) {
    const int lane = lane_index();
    const uint32_t rows = shared_address(stage) + lane % 16 * kStride + lane / 16 * 16;
#pragma unroll
    for (int step = 0; step < kQuerySteps; ++step) {
      uint32_t a[4];
      load_matrices(a, rows + 32 * step);
      multiply_add(Number{}, s[0], a, q[step]);
    }
  }

  static __device__ void accumulate(const uint8_t* stage, const uint32_t (&p)[kTokenTiles][2],
                                    float (&o)[kOutTiles][4]) {
    const int lane = lane_index();
    const uint32_t rows = shared_address(stage) + (lane % 8 + lane / 16 * 8) * kStride + lane / 8 % 2 * 16;
#pragma unroll
    for (int tile = 0; tile < kOutTiles; ++tile) {
      uint32_t a[4];
      load_transposed_matrices(a, rows + 32 * tile);
      multiply_add(Number{}, o[tile], a, p[0]);
    }
  }
};

}  // namespace quire::cuda
