// Kernels that may begin while the one before them ends (programmatic launches): what they call, and whether
// the code that runs calls it.
#pragma once

#include <cuda_runtime_api.h>

#include <map>
#include <utility>

#include "kernels/cuda/check.cuh"

namespace quire::cuda {

// From here on the next kernel may take places that are free.
__device__ __forceinline__ void let_next_begin() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
// Until all kernels before this one are done and what they wrote can be read.
__device__ __forceinline__ void wait_for_inputs() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Whether the current device runs code of the kernel that waits for its inputs: only such a kernel may start
// before the ones before it are done. A newer device may run code made for an older one, which does not wait.
inline bool waits_for_inputs(const void* kernel) {
  thread_local std::map<std::pair<const void*, int>, bool> known;
  int device = 0;
  check(cudaGetDevice(&device), "asking for the device");
  const auto [found, is_new] = known.try_emplace({kernel, device});
  if (is_new) {
    cudaFuncAttributes attributes{};
    check(cudaFuncGetAttributes(&attributes, kernel), "asking for a kernel");
    found->second = attributes.ptxVersion >= 90;
  }
  return found->second;
}

}  // namespace quire::cuda
