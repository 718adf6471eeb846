// Sums of powers of two whose exponents nobody knows beforehand.
#pragma once

#include <math_constants.h>

#include "kernels/cuda/device/warp.cuh"

namespace quire::cuda {

// Sum of 2^x of what was seen, as a number near the largest x and the sum of 2^(x - that).
struct OctaveSum {
  float top = -INFINITY;
  float sum = 0.0f;

  // x [n]; the largest is raised only where something is well above it.
  template <int n>
  __device__ void add(const float (&x)[n]) {
    float highest = x[0];
#pragma unroll
    for (int i = 1; i < n; ++i) highest = fmaxf(highest, x[i]);
    if (highest > top + 8.0f) {
      sum *= power_of_two(top - highest);
      top = highest;
    }
    const float offset = top == -INFINITY ? 0.0f : top;
#pragma unroll
    for (int i = 0; i < n; ++i) sum += power_of_two(x[i] - offset);
  }
  __device__ void add(float other_top, float other_sum) {
    const float highest = fmaxf(top, other_top);
    if (highest == -CUDART_INF_F) return;
    sum = sum * power_of_two(top - highest) + other_sum * power_of_two(other_top - highest);
    top = highest;
  }
  __device__ void add(float2 other) { add(other.x, other.y); }
  // With the lanes that differ in the bits of `lanes`.
  __device__ void add_lane(int lanes) {
    const float other_top = __shfl_xor_sync(kAllLanes, top, lanes);
    add(other_top, __shfl_xor_sync(kAllLanes, sum, lanes));
  }
  __device__ float octaves() const { return sum > 0.0f ? top + __log2f(sum) : -CUDART_INF_F; }
};

// Of the two numbers of a sum.
__device__ __forceinline__ float octaves_of(float2 sum) { return OctaveSum{sum.x, sum.y}.octaves(); }

}  // namespace quire::cuda
