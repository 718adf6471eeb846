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

// In shared memory, while states are merged; weights [n][kTileHeads] lie elsewhere.
struct MergedSums {
  float top[kTileHeads];
  float sum[kTileHeads];
};

// Who merges: the whole block; its first warps, while others do something else; one warp.
struct WholeBlock {
  static __device__ int n_threads() { return (int)blockDim.x; }
  static __device__ int thread() { return (int)threadIdx.x; }
  static __device__ void wait() { __syncthreads(); }
};
template <int kWarps>
struct FirstWarps {
  static __device__ int n_threads() { return 32 * kWarps; }
  static __device__ int thread() { return (int)threadIdx.x; }
  static __device__ void wait() { asm volatile("bar.sync 1, %0;" ::"n"(32 * kWarps) : "memory"); }
};
struct OneWarp {
  static __device__ int n_threads() { return 32; }
  static __device__ int thread() { return lane_index(); }
  static __device__ void wait() { __syncwarp(); }
};

// What each of n states counts for in each of the first n_heads heads; a warp a head. State i begins at
// states + i * stride. The crew waits.
template <int kHeadDim, class Crew = WholeBlock>
__device__ void weigh_states(const float* states, int64_t stride, int n, float* weights, MergedSums& merge,
                             int n_heads = kTileHeads) {
  for (int head = Crew::thread() / 32; head < n_heads; head += Crew::n_threads() / 32) {
    float top = -CUDART_INF_F;
    for (int i = lane_index(); i < n; i += 32) top = fmaxf(top, states[i * stride + head]);
    for (int lanes = 16; lanes > 0; lanes /= 2) top = fmaxf(top, __shfl_xor_sync(kAllLanes, top, lanes));
    float sum = 0.0f;
    for (int i = lane_index(); i < n; i += 32) {
      const float weight = top == -CUDART_INF_F ? 0.0f : power_of_two(states[i * stride + head] - top);
      weights[i * kTileHeads + head] = weight;
      sum += weight * states[i * stride + StateLayout<kHeadDim>::kSums + head];
    }
    for (int lanes = 16; lanes > 0; lanes /= 2) sum += __shfl_xor_sync(kAllLanes, sum, lanes);
    if (lane_index() == 0) {
      merge.top[head] = top;
      merge.sum[head] = sum;
    }
  }
  Crew::wait();
}

// Four dims of the weighted sum, in the order of the states.
template <int kHeadDim>
__device__ float4 merged_output(const float* states, int64_t stride, int n, const float* weights, int head,
                                int dim) {
  const float* o = states + StateLayout<kHeadDim>::kOutputs + head * kHeadDim + dim;
  float4 sum = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll 16
  for (int i = 0; i < n; ++i) {
    const float4 x = *reinterpret_cast<const float4*>(o + i * stride);
    const float weight = weights[i * kTileHeads + head];
    sum.x += weight * x.x;
    sum.y += weight * x.y;
    sum.z += weight * x.z;
    sum.w += weight * x.w;
  }
  return sum;
}

}  // namespace quire::cuda
