// Caps of scores, from two instructions of the device.
#pragma once

#include "kernels/cuda/device/warp.cuh"

namespace quire::cuda {

// c tanh(s / c) = c - 2 c / (1 + exp(2 s / c)); s and cap, which is c, are times log2(e).
__device__ __forceinline__ float capped(float s, float cap) {
  constexpr float kLog2E = 1.4426950408889634f;
  const float power = power_of_two(s * (2.0f * kLog2E / cap));  // exp(2 s / c)
  return cap - __fdividef(2.0f * cap, 1.0f + power);
}

}  // namespace quire::cuda
