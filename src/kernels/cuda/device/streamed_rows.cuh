// Pages of exact rows as streamed_attention.cuh reads them: like exact_rows.cuh, but in shared memory as the
// copy engine lays them.
//
// It copies boxes of 64 rows (32, where these are long), a line wide, without gaps. Eight rows at the same
// dims must lie in different banks, so it exchanges pieces of 16 bytes within the lines of a box, by bits of
// the row's number:
//
//   lines of 128 bytes   piece ^ row % 8
//   lines of 64 bytes    piece ^ row / 2 % 4
//   other lines          as they are: at most four rows meet (192 bytes)
#pragma once

#include "kernels/cuda/device/row_tiles.cuh"

namespace quire::cuda {

template <int kRowBytes_>
struct StreamedBox {
  static constexpr int kTokens = kRowBytes_ > 256 ? 32 : 64;
  static constexpr int kRowBytes = kRowBytes_;
  static constexpr int kParts = kRowBytes % 128 == 0 ? kRowBytes / 128 : 1;
  static constexpr int kLineBytes = kRowBytes / kParts;
  static constexpr int kPartBytes = kTokens * kLineBytes;
  static constexpr int kBytes = kParts * kPartBytes;  // of keys or values

  static __device__ int exchange(int row) {
    return kLineBytes == 128 ? row % 8 : kLineBytes == 64 ? row / 2 % 4 : 0;
  }
  // Of the 16 bytes number `piece` of a row. 16 rows on, everything lies 16 lines further.
  static __device__ int offset(int row, int piece) {
    constexpr int kPieces = kLineBytes / 16;
    return piece / kPieces * kPartBytes + row * kLineBytes + ((piece % kPieces) ^ exchange(row)) * 16;
  }
  // Rows `first` to 15 of a tile, which no token has: what memory holds there may be NaN. By a warp, which
  // waits.
  static __device__ void clear_rows(uint8_t* tile, int first) {
    constexpr int kPieces = kRowBytes / 16;
    for (int i = first * kPieces + lane_index(); i < 16 * kPieces; i += 32) {
      *reinterpret_cast<uint4*>(tile + offset(i / kPieces, i % kPieces)) = uint4{0, 0, 0, 0};
    }
    __syncwarp();
  }
};

template <class Number_, int kHeadDim_>
struct StreamedRows : RowTiles<Number_, kHeadDim_> {
  using Tiles = RowTiles<Number_, kHeadDim_>;
  using Tiles::kHeadDim, Tiles::kTokenTiles, Tiles::kQuerySteps, Tiles::kOutTiles;
  using typename Tiles::Number;
  using Box = StreamedBox<2 * kHeadDim>;

  // As in exact_rows.cuh.
  static __device__ int query_dim(int step, int c, int e) { return 16 * step + 2 * c + e % 2 + 8 * (e / 2); }
  static __device__ int out_dim(int tile, int half, int g) { return 16 * tile + 8 * half + g; }

  static __device__ void score(const uint8_t* tile, const uint32_t (&q)[kQuerySteps][2],
                               float (&s)[kTokenTiles][4]) {
    const int lane = lane_index();
    const uint32_t rows = shared_address(tile);
    float other[4] = {0.0f, 0.0f, 0.0f, 0.0f};  // a shorter chain of sums
#pragma unroll
    for (int step = 0; step < kQuerySteps; ++step) {
      uint32_t a[4];
      load_matrices(a, rows + Box::offset(lane % 16, 2 * step + lane / 16));
      multiply_add(Number{}, step % 2 == 0 ? s[0] : other, a, q[step]);
    }
#pragma unroll
    for (int e = 0; e < 4; ++e) s[0][e] += other[e];
  }

  static __device__ void accumulate(const uint8_t* tile, const uint32_t (&p)[kTokenTiles][2],
                                    float (&o)[kOutTiles][4]) {
    const int lane = lane_index();
    const uint32_t rows = shared_address(tile);
#pragma unroll
    for (int t = 0; t < kOutTiles; ++t) {
      uint32_t a[4];
      load_transposed_matrices(a, rows + Box::offset(lane % 8 + lane / 16 * 8, 2 * t + lane / 8 % 2));
      multiply_add(Number{}, o[t], a, p[0]);
    }
  }
};

}  // namespace quire::cuda
