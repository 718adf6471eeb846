// Memory of the host that kernels read and write where it lies, and that one owner keeps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

namespace quire::cuda {

// Uninitialised bytes. Throws DeviceError, a sentence with the number of bytes, where so many cannot be
// pinned.
class PinnedMemory {
 public:
  PinnedMemory() = default;
  explicit PinnedMemory(size_t n_bytes);
  ~PinnedMemory();
  PinnedMemory(PinnedMemory&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), n_bytes_(std::exchange(other.n_bytes_, 0)) {}
  PinnedMemory& operator=(PinnedMemory&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(n_bytes_, other.n_bytes_);
    return *this;
  }

  size_t size_bytes() const { return n_bytes_; }
  // The same address on host and device.
  uint8_t* data() const { return data_; }

 private:
  uint8_t* data_ = nullptr;
  size_t n_bytes_ = 0;
};

}  // namespace quire::cuda
