#include "kernels/cuda/page_numbers.h"

#include <string>

#include "base/error.h"

namespace quire::cuda {

PageNumbers::PageNumbers(int n_pages) : holders_(static_cast<size_t>(n_pages), 0) {
  free_.reserve(holders_.size());
  for (int page = n_pages - 1; page >= 0; --page) free_.push_back(page);
}

int PageNumbers::take() {
  if (free_.empty()) {
    throw Error("all " + std::to_string(n_pages()) + " pages of the CUDA device's pool are in use");
  }
  const int page = free_.back();
  free_.pop_back();
  holders_[static_cast<size_t>(page)] = 1;
  return page;
}

void PageNumbers::share(int page) {
  QUIRE_CHECK(holders(page) > 0);
  ++holders_[static_cast<size_t>(page)];
}

void PageNumbers::give_back(int page) {
  QUIRE_CHECK(holders(page) > 0);
  if (--holders_[static_cast<size_t>(page)] == 0) free_.push_back(page);
}

}  // namespace quire::cuda
