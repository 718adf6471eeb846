#include "store/store.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "kernels/ops.h"

namespace quire {

namespace {
size_t pages_for(size_t n_tokens) { return (n_tokens + kTokensPerPage - 1) / kTokensPerPage; }
}  // namespace

Store::Store(std::vector<RowLayout> layouts, PagePool& pool)
    : layouts_(std::move(layouts)), pool_(&pool), pages_(layouts_.size()) {}

void Store::extend(size_t n_new) {
  if (n_new == 0) return;
  const size_t n_pages = pages_for(n_tokens_ + n_new);
  const size_t first = n_tokens_ / kTokensPerPage;  // the first page that will be written
  const auto has_room = [&](const std::vector<PageRef>& pages) {
    return pages.size() >= n_pages && std::all_of(pages.begin() + static_cast<ptrdiff_t>(first), pages.end(),
                                                  [](const PageRef& page) { return page.use_count() == 1; });
  };
  if (std::all_of(pages_.begin(), pages_.end(), has_room)) return;  // 63 of 64 decode steps
  std::vector<std::vector<PageRef>> grown = pages_;
  for (size_t layer = 0; layer < n_layers(); ++layer) {
    std::vector<PageRef>& pages = grown[layer];
    // Two holders are this list and its copy; a third one is another sequence. Pages behind the first are there
    // when an earlier extend() was not followed by a commit().
    for (size_t i = first; i < pages.size(); ++i) {
      if (pages[i].use_count() <= 2) continue;
      PageRef copy = pool_->allocate(pages[i]->size_bytes);
      std::memcpy(copy->data, pages[i]->data, copy->size_bytes);
      pages[i] = std::move(copy);
    }
    while (pages.size() < n_pages) pages.push_back(pool_->allocate(layouts_[layer].page_bytes()));
  }
  pages_ = std::move(grown);
}

void Store::commit(size_t n_new) {
  n_tokens_ += n_new;
  QUIRE_CHECK(n_layers() == 0 || n_tokens_ <= pages_[0].size() * kTokensPerPage);
}

void Store::crop(size_t n_tokens) {
  QUIRE_CHECK(n_tokens <= n_tokens_);
  n_tokens_ = n_tokens;
  for (std::vector<PageRef>& pages : pages_) pages.resize(std::min(pages.size(), pages_for(n_tokens)));
}

void Store::write(size_t layer, size_t kv_head, size_t first, size_t n, const float* k, const float* v, size_t ld) {
  const RowLayout& layout = layouts_[layer];
  const int head_dim = static_cast<int>(layout.head_dim);
  const auto key_format = static_cast<size_t>(layout.key_format);
  const auto value_format = static_cast<size_t>(layout.value_format);
  while (n > 0) {
    const size_t slot = first % kTokensPerPage;
    const size_t piece = std::min(n, kTokensPerPage - slot);
    std::byte* page = pages_[layer][first / kTokensPerPage]->data;
    ops().store_keys[key_format](page + layout.key_offset(kv_head), static_cast<int>(slot), static_cast<int>(piece),
                                 head_dim, k, ld);
    ops().store_values[value_format](page + layout.value_offset(kv_head), static_cast<int>(slot),
                                     static_cast<int>(piece), head_dim, v, ld);
    first += piece;
    n -= piece;
    k += piece * ld;
    v += piece * ld;
  }
}

uint64_t Store::size_bytes() const {
  uint64_t total = 0;
  for (const std::vector<PageRef>& pages : pages_) {
    for (const PageRef& page : pages) total += page->size_bytes;
  }
  return total;
}

}  // namespace quire
