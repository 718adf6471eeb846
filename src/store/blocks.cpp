// Pages on their way to a file and back.
#include <cstring>
#include <utility>
#include <vector>

#include "base/error.h"
#include "store/store.h"

namespace quire {

namespace {

size_t pages_for(size_t n_tokens) { return (n_tokens + kTokensPerPage - 1) / kTokensPerPage; }

// Whatever lies behind the last token is of no sequence: it is left over from other ones.
void clear_rows_from(const RowLayout& layout, size_t slot, std::byte* page) {
  const size_t n_left = kTokensPerPage - slot;
  for (size_t head = 0; head < layout.n_kv_heads; ++head) {
    std::byte* keys = page + layout.key_offset(head);
    for (size_t d = 0; d < layout.head_dim; ++d) {
      std::memset(keys + row_bytes(layout.key_format, d * kTokensPerPage + slot), 0,
                  row_bytes(layout.key_format, n_left));
    }
    std::memset(page + layout.value_offset(head) + row_bytes(layout.value_format, slot * layout.head_dim), 0,
                row_bytes(layout.value_format, n_left * layout.head_dim));
  }
}

}  // namespace

void Store::visit_blocks(size_t layer, const std::function<void(std::span<const std::byte>)>& visit) const {
  if (sinks_[layer]) visit({sinks_[layer]->data, sinks_[layer]->size_bytes});
  if (kept_[layer]) visit({kept_[layer]->page->data, kept_[layer]->page->size_bytes});
  for (const PageRef& block : index_blocks_[layer]) visit({block->data, block->size_bytes});
  const size_t n_pages = pages_for(n_tokens_);
  const size_t n_last = n_tokens_ % kTokensPerPage;
  for (size_t i = 0; i < n_pages; ++i) {
    const Page& page = *pages_[layer][i];
    const std::span<const std::byte> bytes(page.data, page.size_bytes);
    if (i + 1 < n_pages || n_last == 0) {
      visit(bytes);
      continue;
    }
    std::vector<std::byte> last(bytes.begin(), bytes.end());
    clear_rows_from(layouts_[layer].open, n_last, last.data());
    visit(last);
  }
}

void Store::restore(size_t n_tokens, std::span<const size_t> n_sealed,
                    std::span<const std::vector<uint32_t>> kept_positions,
                    const std::function<void(std::span<std::byte>)>& fill) {
  QUIRE_CHECK(n_tokens_ == 0 && n_sealed.size() == n_layers());
  std::vector<std::vector<PageRef>> pages(n_layers());
  std::vector<std::vector<PageRef>> index_blocks(n_layers());
  std::vector<PageRef> sinks(n_layers());
  std::vector<std::shared_ptr<const KeptRows>> all_kept(n_layers());
  const auto filled = [&](size_t n_bytes) {
    PageRef page = pool_->allocate(n_bytes);
    fill({page->data, n_bytes});
    return page;
  };
  for (size_t layer = 0; layer < n_layers(); ++layer) {
    const LayerLayout& layout = layouts_[layer];
    QUIRE_CHECK(n_sealed[layer] * kTokensPerPage <= n_tokens && (layout.seals || n_sealed[layer] == 0));
    if (n_sealed[layer] > 0 && layout.sink_tokens > 0) sinks[layer] = filled(layout.sink_bytes());
    if (n_sealed[layer] > 0 && layout.keeps_rows) {
      auto kept = std::make_shared<KeptRows>(kept_positions[layer], layout.open.n_kv_heads, n_sealed[layer]);
      kept->page = filled(layout.open.page_bytes());
      all_kept[layer] = std::move(kept);
    }
    for (size_t i = 0; i < layout.sealed.index_blocks(n_sealed[layer]); ++i) {
      index_blocks[layer].push_back(filled(layout.sealed.index_block_bytes()));
    }
    for (size_t i = 0; i < pages_for(n_tokens); ++i) {
      const bool sealed = i < n_sealed[layer];
      pages[layer].push_back(filled(sealed ? layout.sealed.page_bytes() : layout.open.page_bytes()));
      pages[layer].back()->sealed = sealed;
    }
  }
  pages_ = std::move(pages);
  index_blocks_ = std::move(index_blocks);
  sinks_ = std::move(sinks);
  kept_ = std::move(all_kept);
  n_tokens_ = n_tokens;
}

}  // namespace quire
