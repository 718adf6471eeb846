#include "base/machine_memory.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>

namespace quire {

namespace {

// Of a file of lines "NAME NUMBER ..."; 0: there is none.
uint64_t number_named(const char* path, const std::string& name) {
  std::ifstream file(path);
  std::string word;
  uint64_t n = 0;
  while (file >> word) {
    if (word == name) return file >> n ? n : 0;
  }
  return 0;
}

uint64_t number_in(const char* path) {
  uint64_t n = 0;
  return std::ifstream(path) >> n ? n : 0;
}

struct ControlGroup {
  const char* limit;
  const char* used;
  const char* statistics;
};

// Versions 2 and 1.
constexpr ControlGroup kControlGroups[] = {
    {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current", "/sys/fs/cgroup/memory.stat"},
    {"/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes",
     "/sys/fs/cgroup/memory/memory.stat"}};

}  // namespace

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

uint64_t available_memory_bytes() {
  const uint64_t kilobytes = number_named("/proc/meminfo", "MemAvailable:");
  if (kilobytes == 0) return 0;
  uint64_t n_bytes = 1024 * kilobytes;
  for (const ControlGroup& group : kControlGroups) {
    const uint64_t limit = number_in(group.limit);
    if (limit == 0) continue;
    const uint64_t files =
        number_named(group.statistics, "inactive_file") + number_named(group.statistics, "active_file");
    const uint64_t used = number_in(group.used);
    const uint64_t kept = used - std::min(used, files);
    n_bytes = std::min(n_bytes, limit - std::min(limit, kept));
  }
  return n_bytes;
}

}  // namespace quire
