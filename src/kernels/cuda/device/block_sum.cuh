// Sums over the threads of a block, of up to 32 warps. All threads take part.
#pragma once

#include "kernels/cuda/device/warp.cuh"

namespace quire::cuda {

// Two sums at a time, over the threads behind this one and over all.
struct LaterSums {
  int2 later;
  int2 all;
};

// Not inlined, as other steps that run a few times: instructions that run once have to be fetched.
__device__ __noinline__ inline LaterSums sums_of_later_threads(int first, int second) {
  __shared__ int2 sums[32];
  int2 own = {first, second};
  for (int lanes = 1; lanes < 32; lanes *= 2) {
    const int x = __shfl_down_sync(kAllLanes, own.x, lanes);
    const int y = __shfl_down_sync(kAllLanes, own.y, lanes);
    if (lane_index() + lanes < 32) own.x += x, own.y += y;
  }
  __syncthreads();  // sums of the last call are read
  if (lane_index() == 0) sums[warp_index()] = own;
  __syncthreads();
  const int2 of_warp = lane_index() < (int)blockDim.x / 32 ? sums[lane_index()] : int2{0, 0};
  const bool is_later = lane_index() > warp_index();
  const int2 later = {__reduce_add_sync(kAllLanes, is_later ? of_warp.x : 0),
                      __reduce_add_sync(kAllLanes, is_later ? of_warp.y : 0)};
  return {{own.x - first + later.x, own.y - second + later.y},
          {__reduce_add_sync(kAllLanes, of_warp.x), __reduce_add_sync(kAllLanes, of_warp.y)}};
}

}  // namespace quire::cuda
