// Layers whose queries see a window: rows that no query to come sees leave, page by page.
#include <algorithm>
#include <string>

#include "base/error.h"
#include "store/store.h"

namespace quire {

void Store::leave_window(size_t layer, size_t n_tokens) {
  const size_t n_left = layouts_[layer].left_behind(n_tokens);
  if (n_left <= left_[layer]) return;
  std::vector<PageRef>& pages = pages_[layer];
  const size_t n_pages = (n_left - left_[layer]) / kTokensPerPage;
  QUIRE_CHECK(n_pages <= pages.size());
  pages.erase(pages.begin(), pages.begin() + static_cast<ptrdiff_t>(n_pages));
  left_[layer] = n_left;
}

// Bytes that leave_window() gives back at the end of a step; pages that other sequences see as well stay.
uint64_t Store::window_freed(size_t layer, size_t n_new) const {
  const LayerLayout& layout = layouts_[layer];
  const size_t n_left = std::max(left_[layer], layout.left_behind(n_tokens_ + n_new));
  const size_t n_pages = (n_left - left_[layer]) / kTokensPerPage;
  const std::vector<PageRef>& pages = pages_[layer];
  const size_t first_written = (n_tokens_ - left_[layer]) / kTokensPerPage;
  uint64_t n_bytes = 0;
  for (size_t page = 0; page < n_pages; ++page) {
    const bool shared = page < std::min(first_written, pages.size()) && pages[page].use_count() > 1;
    n_bytes += shared ? 0 : layout.open.page_bytes();
  }
  return n_bytes;
}

size_t Store::fixed_tokens() const {
  size_t most = coded_tokens();
  for (size_t layer = 0; layer < n_layers(); ++layer) {
    if (layouts_[layer].window_tokens > 0) most = std::max(most, layouts_[layer].shortest_cut(left_[layer]));
  }
  return most;
}

void Store::check_windows(size_t n_tokens) const {
  for (size_t layer = 0; layer < n_layers(); ++layer) {
    const size_t window = layouts_[layer].window_tokens;
    if (window == 0 || n_tokens >= layouts_[layer].shortest_cut(left_[layer])) continue;
    throw Error("the cache cannot be cut to " + std::to_string(n_tokens) + " tokens: layer " +
                std::to_string(layer) + " sees a window of " + std::to_string(window) +
                ", and its rows of the first " + std::to_string(left_[layer]) +
                " tokens have left; it can be cut to " + std::to_string(fixed_tokens()) + " or to none");
  }
}

}  // namespace quire
