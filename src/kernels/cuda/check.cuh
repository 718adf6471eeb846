// Every call of the CUDA runtime goes through check(): what it refuses becomes an Error of one sentence.
#pragma once

#include <cuda_runtime_api.h>

#include "base/error.h"

namespace quire::cuda {

// Throws DeviceError: "`what` failed on the CUDA device: `reason`".
void check(cudaError_t result, const char* what);

}  // namespace quire::cuda
