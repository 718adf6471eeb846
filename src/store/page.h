// Pages: blocks of memory for 64 tokens, counted, so that sequences can share them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "base/memory.h"

namespace quire {

class PagePool;

// One page. Whoever holds a PageRef keeps it alive; a page with several holders must not be written.
struct Page {
  std::byte* data = nullptr;
  size_t size_bytes = 0;
  PagePool* pool = nullptr;
  bool sealed = false;  // full, in the layout of coded pages, and never written again
};
using PageRef = std::shared_ptr<Page>;

// Where pages come from. Memory is taken from the system in slabs and kept for reuse; with a budget, a page
// that would exceed it is refused with an Error. Safe to use from several threads. Outlives its pages.
class PagePool {
 public:
  // budget_bytes 0: no limit.
  explicit PagePool(uint64_t budget_bytes = 0) : budget_bytes_(budget_bytes) {}

  PageRef allocate(size_t n_bytes);

  uint64_t budget_bytes() const { return budget_bytes_; }
  // Bytes of the pages that are alive.
  uint64_t used_bytes() const;
  // Bytes taken from the system.
  uint64_t reserved_bytes() const;

 private:
  void release(std::byte* data, size_t n_bytes);
  std::byte* carve(size_t n_bytes);

  const uint64_t budget_bytes_;
  mutable std::mutex mutex_;
  std::vector<Memory> slabs_;
  std::byte* free_begin_ = nullptr;  // rest of the last slab
  size_t free_bytes_ = 0;
  std::map<size_t, std::vector<std::byte*>> returned_;  // by size
  uint64_t used_bytes_ = 0;
  uint64_t reserved_bytes_ = 0;
};

}  // namespace quire
