// Aligned memory that one owner keeps, and what the process uses of it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace quire {

// A block of uninitialised memory aligned to a cache line (to 2 MiB, and backed by huge pages where the
// system grants them, from 2 MiB up). Throws Error when the system refuses.
class Memory {
 public:
  Memory() = default;
  explicit Memory(size_t n_bytes);
  ~Memory();
  Memory(Memory&& other) noexcept;
  Memory& operator=(Memory&& other) noexcept;

  std::byte* data() { return data_; }
  const std::byte* data() const { return data_; }
  size_t size_bytes() const { return n_bytes_; }

  template <typename T>
  T* as() {
    return reinterpret_cast<T*>(data_);
  }
  template <typename T>
  const T* as() const {
    return reinterpret_cast<const T*>(data_);
  }

 private:
  std::byte* data_ = nullptr;
  size_t n_bytes_ = 0;
};

// Largest resident size of this process so far; 0 where the system does not tell.
uint64_t peak_resident_bytes();

}  // namespace quire
