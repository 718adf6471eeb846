// Launches of the kernels of a step, each of which may begin while the one before it ends.
//
// A kernel launched so does what hangs on nothing computed (asking for weights), then calls
// wait_for_inputs(), and reads and writes what others do only behind it.
#pragma once

#include <cuda_runtime_api.h>

#include <utility>

#include "kernels/cuda/attention.h"
#include "kernels/cuda/check.cuh"
#include "kernels/cuda/device/early_start.cuh"

namespace quire::gpu {

using cuda::let_next_begin;
using cuda::wait_for_inputs;
using cuda::waits_for_inputs;

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
