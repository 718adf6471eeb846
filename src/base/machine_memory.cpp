#include "base/machine_memory.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>

namespace quire {

uint64_t machine_memory_bytes() {
  const long n_pages = ::sysconf(_SC_PHYS_PAGES);
  const long page_bytes = ::sysconf(_SC_PAGESIZE);
  if (n_pages <= 0 || page_bytes <= 0) return 0;
  uint64_t n_bytes = static_cast<uint64_t>(n_pages) * static_cast<uint64_t>(page_bytes);
  // Control groups, version 2 and 1. Without a limit there is no file, the word "max", or a number beyond all
  // memory.
  for (const char* path : {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"}) {
    uint64_t limit = 0;
    if (std::ifstream(path) >> limit && limit > 0) n_bytes = std::min(n_bytes, limit);
  }
  return n_bytes;
}

}  // namespace quire
