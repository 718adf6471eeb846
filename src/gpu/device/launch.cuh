// Launches of the kernels of a step, each of which may begin while the one before it ends.
//
// A kernel launched so does what hangs on nothing computed (asking for weights), then calls
// wait_for_inputs(), and reads and writes what others do only behind it.
#pragma once

#include <cuda_runtime_api.h>

#include <map>
#include <utility>

#include "kernels/cuda/attention.h"
#include "kernels/cuda/check.cuh"

namespace quire::gpu {

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
  cuda::check(cudaGetDevice(&device), "asking for the device");
  const auto [found, is_new] = known.try_emplace({kernel, device});
  if (is_new) {
    cudaFuncAttributes attributes{};
    cuda::check(cudaFuncGetAttributes(&attributes, kernel), "asking for a kernel");
    found->second = attributes.ptxVersion >= 90;
  }
  return found->second;
}

template <class... Parameters, class... Arguments>
void launch_step(void (*kernel)(Parameters...), dim3 grid, int n_threads, size_t shared_bytes,
                 cuda::Stream stream, Arguments&&... arguments) {
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = dim3(static_cast<unsigned>(n_threads));
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = waits_for_inputs(reinterpret_cast<const void*>(kernel)) ? 1 : 0;
  cuda::check(cudaLaunchKernelEx(&config, kernel, Parameters(std::forward<Arguments>(arguments))...),
              "launching a step");
}

}  // namespace quire::gpu
