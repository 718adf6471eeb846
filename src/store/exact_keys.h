// Keys of a layer that stay exact beside their codes, while the values of the same rows are read coded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "store/page.h"

namespace quire {

// The same rows for all heads. Immutable, shared by forks.
struct ExactKeys {
  // positions: rising, all within the first n_pages pages.
  ExactKeys(std::vector<uint32_t> positions_in, size_t n_pages);

  std::vector<uint32_t> positions;  // rising, all in sealed pages
  std::vector<uint32_t> first;      // [page + 1] index of the first position that lies in it or behind it
  PageRef rows;                     // [kv_head][position][head_dim], in the format of open pages

  // Indices of the positions of a page: first[page]..first[page + 1] - 1.
  bool any(size_t page) const { return n_of(page) > 0; }
  size_t n_of(size_t page) const { return page + 1 < first.size() ? first[page + 1] - first[page] : 0; }
};

}  // namespace quire
