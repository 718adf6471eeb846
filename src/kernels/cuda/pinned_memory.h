// Memory of the host that kernels read and write where it lies, and that one owner keeps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

namespace quire::cuda {

// Throws DeviceError, a sentence with the numbers, where the host does not have so many bytes now: pinning
// them would end processes before it failed. Needs no device.
void check_pinned_room(size_t n_bytes);
// Of all that lives: nothing is left behind where it is 0.
uint64_t pinned_bytes();

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
