// Blocks of a cluster: where they meet, and each other's shared memory. Devices before sm_90 have clusters of
// one block.
#pragma once

#include <stdint.h>

namespace quire::cuda {

__device__ __forceinline__ int cluster_blocks() {
#if __CUDA_ARCH__ >= 900
  uint32_t n;
  asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(n));
  return (int)n;
#else
  return 1;
#endif
}
__device__ __forceinline__ int cluster_rank() {
#if __CUDA_ARCH__ >= 900
  uint32_t rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return (int)rank;
#else
  return 0;
#endif
}

// All threads of all blocks; what any of them wrote to shared memory is seen by all.
__device__ __forceinline__ void cluster_wait() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.release.aligned;\n barrier.cluster.wait.acquire.aligned;" ::
                   : "memory");
#else
  __syncthreads();
#endif
}

// What lies at the same place in the shared memory of another block.
template <class T>
__device__ __forceinline__ const T* of_block(const T* own, int rank) {
#if __CUDA_ARCH__ >= 900
  uint64_t other;
  asm("mapa.u64 %0, %1, %2;" : "=l"(other) : "l"(own), "r"(rank));
  return reinterpret_cast<const T*>(other);
#else
  (void)rank;
  return own;
#endif
}

}  // namespace quire::cuda
