#include "kernels/cuda/pinned_memory.h"

#include <atomic>
#include <string>

#include "base/device_error.h"
#include "base/machine_memory.h"
#include "kernels/cuda/check.cuh"
#include "kernels/cuda/device_buffer.h"

namespace quire::cuda {

namespace {

std::atomic<uint64_t> n_pinned{0};

[[noreturn]] void refuse(size_t n_bytes, const std::string& why) {
  throw DeviceError("the host has no room for " + std::to_string(n_bytes) +
                    " bytes of pinned memory for the CUDA device: " + why);
}

}  // namespace

uint64_t pinned_bytes() { return n_pinned; }

void check_pinned_room(size_t n_bytes) {
  const uint64_t there = available_memory_bytes();
  if (there > 0 && n_bytes > there) refuse(n_bytes, std::to_string(there) + " are available");
}

PinnedMemory::PinnedMemory(size_t n_bytes) {
  if (n_bytes == 0) return;
  require_device();
  check_pinned_room(n_bytes);
  void* data = nullptr;
  const cudaError_t result = is_allocation_refused() ? cudaErrorMemoryAllocation
                                                     : cudaHostAlloc(&data, n_bytes, cudaHostAllocMapped);
  if (result == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    refuse(n_bytes, cudaGetErrorString(result));
  }
  check(result, "pinning memory of the host");
  data_ = static_cast<uint8_t*>(data);
  n_bytes_ = n_bytes;
  n_pinned += n_bytes;
}

PinnedMemory::~PinnedMemory() {
  if (data_ == nullptr) return;
  cudaFreeHost(data_);  // nothing can be done about a failure here
  n_pinned -= n_bytes_;
}

}  // namespace quire::cuda
