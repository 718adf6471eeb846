#include "store/kept_rows.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "base/error.h"
#include "store/store.h"

namespace quire {

KeptRows::KeptRows(std::vector<uint32_t> positions_in, size_t n_kv_heads, size_t n_pages_in)
    : n(positions_in.size() / n_kv_heads),
      n_pages(n_pages_in),
      positions(std::move(positions_in)),
      words(n_kv_heads * n_pages) {
  for (size_t i = 0; i < positions.size(); ++i) {
    QUIRE_CHECK(positions[i] < n_pages * kTokensPerPage);
    words[i / n * n_pages + positions[i] / kTokensPerPage] |= uint64_t{1} << positions[i] % kTokensPerPage;
  }
}

void Store::keep_rows(size_t layer, std::vector<uint32_t> positions, size_t n_pages) {
  const RowLayout& layout = layouts_[layer].open;
  auto kept = std::make_shared<KeptRows>(std::move(positions), layout.n_kv_heads, n_pages);
  kept->page = pool_->allocate(layout.page_bytes());
  std::memset(kept->page->data, 0, kept->page->size_bytes);
  for (size_t head = 0; head < layout.n_kv_heads; ++head) {
    for (size_t i = 0; i < kept->n; ++i) copy_row(layer, head, kept->positions[head * kept->n + i], i, *kept);
  }
  kept_[layer] = std::move(kept);
}

}  // namespace quire
