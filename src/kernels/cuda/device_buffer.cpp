#include "kernels/cuda/device_buffer.h"

#include <atomic>
#include <string>

#include "base/device_error.h"
#include "kernels/cuda/check.cuh"

namespace quire::cuda {

int device_count() {
  int n = 0;
  if (cudaGetDeviceCount(&n) == cudaSuccess) return n;
  cudaGetLastError();  // no driver, or no device: both are an answer
  return 0;
}

void require_device() {
  if (device_count() == 0) throw DeviceError("no CUDA device was found: a GPU and its driver are needed");
  int device = 0;
  int major = 0;
  check(cudaGetDevice(&device), "asking for the device");
  check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device), "asking for its kind");
  if (major < 8) {
    throw DeviceError("the CUDA device has compute capability " + std::to_string(major) +
                      ".x; 8.0 or newer is needed");
  }
}

namespace {

std::atomic<int> n_until_refusal{-1};

}  // namespace

bool is_allocation_refused() { return n_until_refusal >= 0 && n_until_refusal-- == 0; }

void refuse_allocation(int n) { n_until_refusal = n; }

DeviceBuffer::DeviceBuffer(size_t n_bytes) {
  if (n_bytes == 0) return;
  require_device();
  void* data = nullptr;
  const cudaError_t result = is_allocation_refused() ? cudaErrorMemoryAllocation : cudaMalloc(&data, n_bytes);
  if (result == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    size_t free_bytes = 0;
    size_t all_bytes = 0;
    check(cudaMemGetInfo(&free_bytes, &all_bytes), "asking for free memory");
    throw DeviceError("the CUDA device has no room for " + std::to_string(n_bytes) + " bytes: " +
                      std::to_string(free_bytes) + " of " + std::to_string(all_bytes) + " are free");
  }
  check(result, "reserving memory");
  data_ = static_cast<std::byte*>(data);
  n_bytes_ = n_bytes;
}

DeviceBuffer::~DeviceBuffer() {
  if (data_ != nullptr) cudaFree(data_);  // nothing can be done about a failure here
}

void DeviceBuffer::fill(uint8_t value, Stream stream) {
  if (n_bytes_ > 0) check(cudaMemsetAsync(data_, value, n_bytes_, stream), "filling memory");
}

void DeviceBuffer::write(const void* from, size_t n_bytes, size_t offset) {
  QUIRE_CHECK(offset <= n_bytes_ && n_bytes <= n_bytes_ - offset);
  if (n_bytes > 0)
    check(cudaMemcpy(data_ + offset, from, n_bytes, cudaMemcpyHostToDevice), "writing to memory");
}

void DeviceBuffer::read(void* to, size_t n_bytes, size_t offset) const {
  QUIRE_CHECK(offset <= n_bytes_ && n_bytes <= n_bytes_ - offset);
  if (n_bytes > 0)
    check(cudaMemcpy(to, data_ + offset, n_bytes, cudaMemcpyDeviceToHost), "reading from memory");
}

void wait_for(Stream stream) { check(cudaStreamSynchronize(stream), "a kernel"); }

}  // namespace quire::cuda
