#include "tier/mapped_bytes.h"

#include <sys/mman.h>

#include <string>

#include "base/error.h"

namespace quire {

MappedBytes::MappedBytes(size_t n_bytes) : n_bytes_(n_bytes) {
  if (n_bytes == 0) return;
  void* data = mmap(nullptr, n_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) {
    throw Error("out of memory: the system refused " + std::to_string(n_bytes) + " bytes");
  }
  data_ = static_cast<std::byte*>(data);
}

MappedBytes::~MappedBytes() {
  if (data_ != nullptr) munmap(data_, n_bytes_);
}

}  // namespace quire
