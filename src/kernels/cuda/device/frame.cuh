// Rows into their frame (format/frame.h), by half warps: the same operations on every number in the same
// order, and so the same bits as on the CPU. Built without contraction.
#pragma once

#include "format/frame.h"
#include "kernels/cuda/device/warp.cuh"

namespace quire::cuda {

// Half a warp works on a row: number j belongs to lane j % 16.
constexpr int kRowLanes = 16;
__device__ __forceinline__ int row_lane() { return (int)(threadIdx.x % kRowLanes); }

// hadamard_block() of n numbers.
__device__ inline void hadamard_row(float* x, int n) {
#pragma unroll 1  // instructions that are run once have to be fetched
  for (int half = 1; half < n; half *= 2) {
    __syncwarp();
    for (int pair = row_lane(); pair < n / 2; pair += kRowLanes) {
      const int i = pair + (pair & -half);  // half is a power of two
      const float a = x[i];
      const float b = x[i + half];
      x[i] = a + b;
      x[i + half] = a - b;
    }
  }
  __syncwarp();
  const float scale = sqrtf(1.0f / (float)n);
  for (int i = row_lane(); i < n; i += kRowLanes) x[i] *= scale;
  __syncwarp();
}

// rotate().
__device__ inline void rotate_row(const Frame& frame, float* x) {
  if (frame.signs == nullptr) return;
  const int block = largest_block(frame.head_dim);
  for (int j = row_lane(); j < frame.head_dim; j += kRowLanes) x[j] *= frame.signs[j];
  __syncwarp();
  if (block != frame.head_dim) {
    hadamard_row(x + frame.head_dim - block, block);
    for (int j = row_lane(); j < block; j += kRowLanes) x[j] *= frame.signs[frame.head_dim - 1 - j];
    __syncwarp();
  }
  hadamard_row(x, block);
}

// rotate_back().
__device__ inline void rotate_row_back(const Frame& frame, float* x) {
  if (frame.signs == nullptr) return;
  const int block = largest_block(frame.head_dim);
  hadamard_row(x, block);
  if (block != frame.head_dim) {
    for (int j = row_lane(); j < block; j += kRowLanes) x[j] *= frame.signs[frame.head_dim - 1 - j];
    __syncwarp();
    hadamard_row(x + frame.head_dim - block, block);
  }
  for (int j = row_lane(); j < frame.head_dim; j += kRowLanes) x[j] *= frame.signs[j];
  __syncwarp();
}

// to_frame() in place.
__device__ inline void row_to_frame(const Frame& frame, float* x) {
  for (int j = row_lane(); j < frame.head_dim; j += kRowLanes) {
    const float centred = frame.mean != nullptr ? x[j] - frame.mean[j] : x[j];
    x[j] = frame.balance != nullptr ? centred / frame.balance[j] : centred;
  }
  __syncwarp();
  rotate_row(frame, x);
}

}  // namespace quire::cuda
