// Pages: blocks of memory for 64 tokens, counted, so that sequences can share them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "base/memory.h"
#include "base/memory_account.h"
#include "tier/outside_page.h"

namespace quire {

class PagePool;

// One page. Whoever holds a PageRef keeps it alive; a page with several holders must not be written.
struct Page {
  std::byte* data = nullptr;
  size_t size_bytes = 0;
  PagePool* pool = nullptr;
  bool sealed = false;  // full, in the layout of sealed pages, and never written again
  // Where its rows lie in a tier: data then holds its digests alone.
  OutsidePageRef outside = nullptr;
};
using PageRef = std::shared_ptr<Page>;

// Where pages come from. Memory is taken from the system in large blocks and kept for reuse; with a budget, a
// page that would exceed it is refused with an Error. Safe to use from several threads. Outlives its pages.
class PagePool {
 public:
  // What becomes of the memory of pages that nobody holds: it is kept as it is, or the system may have it
  // until it is used again.
  enum class Returned { kKept, kGivenBack };

  // budget_bytes 0: no limit.
  explicit PagePool(uint64_t budget_bytes = 0, Returned returned = Returned::kKept)
      : account_(budget_bytes), gives_back_(returned == Returned::kGivenBack) {}

  PageRef allocate(size_t n_bytes);

  uint64_t budget_bytes() const { return account_.limit_bytes(); }
  // Pages, and what tiers hold besides: all that the budget counts.
  MemoryAccount& account() { return account_; }
  const MemoryAccount& account() const { return account_; }
  // Bytes of the pages that are alive.
  uint64_t used_bytes() const;
  // Bytes taken from the system.
  uint64_t reserved_bytes() const;

 private:
  void release(std::byte* data, size_t n_bytes);
  std::byte* carve(size_t n_bytes);

  MemoryAccount account_;
  const bool gives_back_;
  mutable std::mutex mutex_;
  std::vector<Memory> slabs_;
  std::byte* free_begin_ = nullptr;  // rest of the last slab
  size_t free_bytes_ = 0;
  std::map<size_t, std::vector<std::byte*>> returned_;  // by size
  uint64_t used_bytes_ = 0;
  uint64_t reserved_bytes_ = 0;
};

}  // namespace quire
