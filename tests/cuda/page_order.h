// Pages of sequences in random order.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include "property/random.h"

namespace quire::test {

// Page numbers in random order.
struct PageOrder {
  PageOrder(const std::vector<int>& n_pages, Random& random) {
    size_t n = 1;
    for (const int pages : n_pages) {
      stride = std::max(stride, static_cast<size_t>(pages));
      n += static_cast<size_t>(pages);
    }
    std::vector<int32_t> order(n);
    std::iota(order.begin(), order.end(), 0);
    for (size_t i = n - 1; i > 0; --i) std::swap(order[i], order[random.below(i + 1)]);
    entries.assign(n_pages.size() * stride, -1);
    size_t next = 0;
    for (size_t s = 0; s < n_pages.size(); ++s) {
      for (int at = 0; at < n_pages[s]; ++at) entries[s * stride + static_cast<size_t>(at)] = order[next++];
    }
    size = n;
  }
  size_t at(size_t sequence, size_t page) const {
    return static_cast<size_t>(entries[sequence * stride + page]);
  }

  size_t stride = 1;
  size_t size = 0;
  std::vector<int32_t> entries;
};

inline std::vector<int> pages_for(const std::vector<int>& rows) {
  std::vector<int> pages;
  for (const int n : rows) pages.push_back((n + 63) / 64);
  return pages;
}

}  // namespace quire::test
