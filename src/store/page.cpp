#include "store/page.h"

#include <sys/mman.h>

#include <algorithm>

#include "base/error.h"
#include "kernels/ops.h"

namespace quire {

namespace {
// Small enough that what a sequence leaves unused of its last slab does not matter.
constexpr size_t kSlabBytes = size_t{2} << 20;

// The system may use the whole memory pages inside until they are written again; small ones are not worth it.
void let_go(std::byte* data, size_t n_bytes) {
  constexpr uintptr_t kMemoryPage = 4096;
  const auto begin = (reinterpret_cast<uintptr_t>(data) + kMemoryPage - 1) / kMemoryPage * kMemoryPage;
  const auto end = (reinterpret_cast<uintptr_t>(data) + n_bytes) / kMemoryPage * kMemoryPage;
  if (end >= begin + 4 * kMemoryPage) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}
}  // namespace

PageRef PagePool::allocate(size_t n_bytes) {
  if (!account_.take(n_bytes)) {
    throw Error("the cache needs " + std::to_string(account_.firm_bytes() + n_bytes) +
                " bytes, and its budget is " + std::to_string(budget_bytes()));
  }
  std::lock_guard lock(mutex_);
  std::vector<std::byte*>& returned = returned_[n_bytes];
  std::byte* data = nullptr;
  if (returned.empty()) {
    try {
      data = carve(n_bytes);
    } catch (...) {
      account_.give_back(n_bytes);
      throw;
    }
  } else {
    data = returned.back();
    returned.pop_back();
  }
  used_bytes_ += n_bytes;
  return PageRef(new Page{data, n_bytes, this}, [](Page* page) {
    page->pool->release(page->data, page->size_bytes);
    delete page;
  });
}

std::byte* PagePool::carve(size_t n_bytes) {
  // Cache lines are not shared between pages; kernels may read a register past the end of a page.
  const size_t rounded = std::max<size_t>(64, (n_bytes + 63) / 64 * 64);
  if (free_bytes_ < rounded + kSpareBytes) {
    // A whole number of pages: a remainder too small for one would be lost.
    const size_t slab_bytes = (kSlabBytes + rounded - 1) / rounded * rounded + kSpareBytes;
    slabs_.emplace_back(slab_bytes);
    free_begin_ = slabs_.back().data();
    free_bytes_ = slab_bytes;
    reserved_bytes_ += slab_bytes;
  }
  std::byte* data = free_begin_;
  free_begin_ += rounded;
  free_bytes_ -= rounded;
  return data;
}

void PagePool::release(std::byte* data, size_t n_bytes) {
  if (gives_back_) let_go(data, n_bytes);
  {
    std::lock_guard lock(mutex_);
    returned_[n_bytes].push_back(data);
    used_bytes_ -= n_bytes;
  }
  account_.give_back(n_bytes);
}

uint64_t PagePool::used_bytes() const {
  std::lock_guard lock(mutex_);
  return used_bytes_;
}

uint64_t PagePool::reserved_bytes() const {
  std::lock_guard lock(mutex_);
  return reserved_bytes_;
}

}  // namespace quire
