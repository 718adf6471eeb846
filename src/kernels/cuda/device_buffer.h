// Memory on the current CUDA device that one owner keeps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "kernels/cuda/attention.h"

namespace quire::cuda {

// Throws DeviceError, a sentence, where there is no device to run on, or it refuses.
void require_device();
// How many there are; none is no error.
int device_count();

// For tests of what is left behind: the allocation after n others is refused as if memory was full; below 0:
// none is.
void refuse_allocation(int n);
// Counts down to the allocation that is to fail; asked by each.
bool is_allocation_refused();

// Uninitialised bytes. Throws DeviceError when the device refuses: the sentence says how much was asked for
// and is free.
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  explicit DeviceBuffer(size_t n_bytes);
  ~DeviceBuffer();
  DeviceBuffer(DeviceBuffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), n_bytes_(std::exchange(other.n_bytes_, 0)) {}
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(n_bytes_, other.n_bytes_);
    return *this;
  }

  size_t size_bytes() const { return n_bytes_; }
  // To the device's memory: not to be followed on the host.
  template <typename T>
  T* as() const {
    return reinterpret_cast<T*>(data_);
  }

  // All bytes become `value`, in the order of the stream.
  void fill(uint8_t value, Stream stream = nullptr);
  // Copies; the host waits until it is done.
  void write(const void* from, size_t n_bytes, size_t offset = 0);
  void read(void* to, size_t n_bytes, size_t offset = 0) const;

 private:
  std::byte* data_ = nullptr;
  size_t n_bytes_ = 0;
};

// Until everything asked of the stream is done; throws Error if something went wrong.
void wait_for(Stream stream);

}  // namespace quire::cuda
