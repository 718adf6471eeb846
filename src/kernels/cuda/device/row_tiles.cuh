// What attention kernels are told alike of exact rows, which they read in tiles of 16 tokens.
#pragma once

#include "kernels/cuda/device/warp.cuh"

namespace quire::cuda {

template <class Number_, int kHeadDim_>
struct RowTiles {
  using Number = Number_;
  static constexpr int kHeadDim = kHeadDim_;
  static constexpr int kTileTokens = 16;
  static constexpr int kTokenTiles = 1;  // of 16 tokens
  static constexpr int kQuerySteps = kHeadDim / 16;
  static constexpr int kOutTiles = kHeadDim / 16;

  struct Tables {};
  struct ValueScale {};

  static __device__ int token_in_tile(int, int half, int g) { return 8 * half + g; }
  // Values have no scale.
  static __device__ float weigh(const uint8_t*, float (&)[kTokenTiles][4], ValueScale&, int) { return 1.0f; }
  static __device__ float value_unit(const ValueScale&) { return 1.0f; }
};

}  // namespace quire::cuda
