// Which pages of a pool are free and how many sequences hold each of the others. No memory of its own: host
// logic of device_pages.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace quire::cuda {

class PageNumbers {
 public:
  explicit PageNumbers(int n_pages);

  int n_pages() const { return static_cast<int>(holders_.size()); }
  int n_free() const { return static_cast<int>(free_.size()); }
  // 0: the page is free.
  int holders(int page) const { return holders_[static_cast<size_t>(page)]; }

  // A page with one holder. Throws Error when none is free.
  int take();
  // One more holder, or one fewer; a page without holders is free.
  void share(int page);
  void give_back(int page);

 private:
  std::vector<int> holders_;  // [page]
  std::vector<int> free_;     // taken from the back
};

}  // namespace quire::cuda
