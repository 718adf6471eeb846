// Rows of a layer that stay exact although their pages are coded, chosen for each KV head.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "store/page.h"

namespace quire {

// Immutable, shared by forks.
struct KeptRows {
  // positions [n_kv_heads][n], rising, all within the first n_pages pages.
  KeptRows(std::vector<uint32_t> positions_in, size_t n_kv_heads, size_t n_pages_in);

  // Of the tokens of a page, which are kept.
  uint64_t word(size_t kv_head, size_t at) const { return at < n_pages ? words[kv_head * n_pages + at] : 0; }

  size_t n = 0;
  size_t n_pages = 0;
  std::vector<uint32_t> positions;
  std::vector<uint64_t> words;  // [n_kv_heads][n_pages]
  PageRef page;                 // the rows, in the layout of an open page: token i is row i
};

}  // namespace quire
