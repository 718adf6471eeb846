#include "base/memory.h"

#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <utility>

#include "base/error.h"

namespace quire {

namespace {
constexpr size_t kHugePageBytes = size_t{2} << 20;
}

Memory::Memory(size_t n_bytes) : n_bytes_(n_bytes) {
  if (n_bytes == 0) return;
  const size_t alignment = n_bytes >= kHugePageBytes ? kHugePageBytes : 64;
  const size_t n_units = n_bytes / alignment + (n_bytes % alignment != 0);
  const bool fits = n_units <= SIZE_MAX / alignment;
  data_ = fits ? static_cast<std::byte*>(std::aligned_alloc(alignment, n_units * alignment)) : nullptr;
  if (data_ == nullptr) {
    throw Error("out of memory: the system refused " + std::to_string(n_bytes) + " bytes");
  }
  // A hint only: the whole huge pages inside, so that resident memory never exceeds what was asked for.
  if (n_bytes >= kHugePageBytes) madvise(data_, n_bytes / kHugePageBytes * kHugePageBytes, MADV_HUGEPAGE);
}

Memory::~Memory() { std::free(data_); }

Memory::Memory(Memory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), n_bytes_(std::exchange(other.n_bytes_, 0)) {}

Memory& Memory::operator=(Memory&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(n_bytes_, other.n_bytes_);
  return *this;
}

// From /proc and not from getrusage(), whose figure survives exec: a program started by a large one would
// report its parent's size.
uint64_t peak_resident_bytes() {
  std::ifstream status("/proc/self/status");
  std::string line;
  while (std::getline(status, line)) {
    unsigned long long kibibytes = 0;
    if (std::sscanf(line.c_str(), "VmHWM: %llu kB", &kibibytes) == 1) return kibibytes * 1024;
  }
  return 0;
}

}  // namespace quire
