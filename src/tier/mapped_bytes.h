// Memory from the system that goes back to it, aligned as direct transfers want it.
#pragma once

#include <cstddef>
#include <utility>

namespace quire {

// Zeros at first. Throws Error when the system refuses.
class MappedBytes {
 public:
  MappedBytes() = default;
  explicit MappedBytes(size_t n_bytes);
  MappedBytes(MappedBytes&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), n_bytes_(std::exchange(other.n_bytes_, 0)) {}
  MappedBytes& operator=(MappedBytes&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(n_bytes_, other.n_bytes_);
    return *this;
  }
  ~MappedBytes();

  std::byte* data() const { return data_; }
  size_t size_bytes() const { return n_bytes_; }

 private:
  std::byte* data_ = nullptr;
  size_t n_bytes_ = 0;
};

}  // namespace quire
