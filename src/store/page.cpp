#include "store/page.h"

#include <algorithm>

#include "base/error.h"
#include "kernels/ops.h"

namespace quire {

namespace {
// Small enough that what a sequence leaves unused of its last slab does not matter.
constexpr size_t kSlabBytes = size_t{2} << 20;
}  // namespace

PageRef PagePool::allocate(size_t n_bytes) {
  std::lock_guard lock(mutex_);
  if (budget_bytes_ != 0 && used_bytes_ + n_bytes > budget_bytes_) {
    throw Error("the cache needs " + std::to_string(used_bytes_ + n_bytes) + " bytes, and its budget is " +
                std::to_string(budget_bytes_));
  }
  std::vector<std::byte*>& returned = returned_[n_bytes];
  std::byte* data = nullptr;
  if (returned.empty()) {
    data = carve(n_bytes);
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
  const size_t rounded = (n_bytes + 63) / 64 * 64;
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
  std::lock_guard lock(mutex_);
  returned_[n_bytes].push_back(data);
  used_bytes_ -= n_bytes;
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
