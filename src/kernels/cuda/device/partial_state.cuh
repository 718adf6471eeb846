// Partial states (m, l, o) of kTileHeads query heads as warps and blocks leave them, and their merge. Scores,
// and m with them, are logarithms to base 2.
#pragma once

#include <math_constants.h>

#include "kernels/cuda/attention.h"
#include "kernels/cuda/device/warp.cuh"

namespace quire::cuda {

// In floats: m [kTileHeads], l [kTileHeads], o [kTileHeads][head_dim].
template <int kHeadDim>
struct StateLayout {
  static constexpr int kSums = kTileHeads;
  static constexpr int kOutputs = 2 * kTileHeads;
  static constexpr int kFloats = kTileHeads * (kHeadDim + 2);
};

// Of one head and dim.
struct MergedState {
  float m;
  float l;
  float o;
};

// State i begins at states + i * stride. In the order of the states, whatever wrote them.
template <int kHeadDim>
__device__ MergedState merge_states(const float* states, int64_t stride, int n, int head, int dim) {
  using Layout = StateLayout<kHeadDim>;
  float top = -CUDART_INF_F;
  for (int i = 0; i < n; ++i) top = fmaxf(top, states[i * stride + head]);
  MergedState merged = {top, 0.0f, 0.0f};
  if (top == -CUDART_INF_F) return merged;
#pragma unroll 4
  for (int i = 0; i < n; ++i) {
    const float* state = states + i * stride;
    const float weight = power_of_two(state[head] - top);
    merged.l += weight * state[Layout::kSums + head];
    merged.o += weight * state[Layout::kOutputs + head * kHeadDim + dim];
  }
  return merged;
}

}  // namespace quire::cuda
