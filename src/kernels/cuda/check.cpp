#include "kernels/cuda/check.cuh"

#include <string>

namespace quire::cuda {

void check(cudaError_t result, const char* what) {
  if (result == cudaSuccess) return;
  cudaGetLastError();  // a refused call must not be reported a second time
  throw Error(std::string(what) + " failed on the CUDA device: " + cudaGetErrorString(result));
}

}  // namespace quire::cuda
