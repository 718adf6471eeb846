#include "kernels/cuda/check.cuh"

#include <string>

#include "base/device_error.h"

namespace quire::cuda {

void check(cudaError_t result, const char* what) {
  if (result == cudaSuccess) return;
  cudaGetLastError();  // a refused call must not be reported a second time
  throw DeviceError(std::string(what) + " failed on the CUDA device: " + cudaGetErrorString(result));
}

}  // namespace quire::cuda
