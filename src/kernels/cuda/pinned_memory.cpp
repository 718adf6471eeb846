#include "kernels/cuda/pinned_memory.h"

#include <string>

#include "base/device_error.h"
#include "kernels/cuda/check.cuh"
#include "kernels/cuda/device_buffer.h"

namespace quire::cuda {

PinnedMemory::PinnedMemory(size_t n_bytes) {
  if (n_bytes == 0) return;
  require_device();
  void* data = nullptr;
  const cudaError_t result = is_allocation_refused() ? cudaErrorMemoryAllocation
                                                     : cudaHostAlloc(&data, n_bytes, cudaHostAllocMapped);
  if (result != cudaSuccess) {
    cudaGetLastError();
    throw DeviceError("the host has no room for " + std::to_string(n_bytes) +
                      " bytes of pinned memory for the CUDA device: " + cudaGetErrorString(result));
  }
  data_ = static_cast<uint8_t*>(data);
  n_bytes_ = n_bytes;
}

PinnedMemory::~PinnedMemory() {
  if (data_ != nullptr) cudaFreeHost(data_);  // nothing can be done about a failure here
}

}  // namespace quire::cuda
