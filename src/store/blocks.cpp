// Pages on their way to a file and back.
#include <cstring>
#include <utility>
#include <vector>

#include "base/error.h"
#include "store/page_count.h"
#include "store/store.h"

namespace quire {

namespace {

// Whatever lies behind the last token is of no sequence: it is left over from other ones.
void clear_rows_from(const LayerLayout& layer, size_t slot, std::byte* page) {
  const RowLayout& layout = layer.open;
  const size_t n_left = kTokensPerPage - slot;
  for (size_t head = 0; head < layout.n_kv_heads; ++head) {
    std::byte* keys = page + layout.key_offset(head);
    for (size_t d = 0; d < layout.head_dim; ++d) {
      std::memset(keys + row_bytes(layout.key_format, d * kTokensPerPage + slot), 0,
                  row_bytes(layout.key_format, n_left));
    }
    std::memset(page + layout.value_offset(head) + row_bytes(layout.value_format, slot * layout.head_dim), 0,
                row_bytes(layout.value_format, n_left * layout.head_dim));
    if (layer.clear_digest) layer.clear_digest(slot, page + layout.digest_offset(head));
  }
}

}  // namespace

void Store::visit_blocks(size_t layer, const std::function<void(std::span<const std::byte>)>& visit) const {
  if (sinks_[layer]) visit({sinks_[layer]->data, sinks_[layer]->size_bytes});
  if (kept_[layer]) visit({kept_[layer]->page->data, kept_[layer]->page->size_bytes});
  if (exact_keys_[layer]) {
    const size_t n_sealed = view(layer, n_tokens_).n_sealed();
    visit({exact_keys_[layer]->rows->data, layouts_[layer].exact_key_bytes(n_sealed)});
  }
  for (const PageRef& block : index_blocks_[layer]) visit({block->data, block->size_bytes});
  const size_t n_rows = n_tokens_ - left_[layer];
  const size_t n_pages = pages_for(n_rows);
  const size_t n_last = n_rows % kTokensPerPage;
  for (size_t i = 0; i < n_pages; ++i) {
    const Page& page = *pages_[layer][i];
    if (i + 1 < n_pages || n_last == 0) {
      visit_page(layer, page, visit);
      continue;
    }
    const std::span<const std::byte> bytes(page.data, page.size_bytes);
    std::vector<std::byte> last(bytes.begin(), bytes.end());
    clear_rows_from(layouts_[layer], n_last, last.data());
    visit(last);
  }
}

// What is reserved of the tokens in coded pages hangs on their number alone.
std::shared_ptr<ExactKeys> Store::reserved_keys(size_t layer, size_t n_sealed) const {
  LogReserveState state(layouts_[layer].key_reserve);
  std::vector<uint32_t> settled;
  state.append(n_sealed * kTokensPerPage, settled);
  const std::span<const uint32_t> reserved = state.reserved();
  return std::make_shared<ExactKeys>(std::vector<uint32_t>(reserved.begin(), reserved.end()), n_sealed);
}

void Store::restore_layer(size_t layer, const LayerContents& contents, const Fill& fill) {
  const LayerLayout& layout = layouts_[layer];
  const size_t n_sealed = contents.n_sealed;
  const bool may_leave = layout.drops() || layout.window_tokens > 0;
  QUIRE_CHECK(contents.n_left <= n_tokens_ && (may_leave || contents.n_left == 0));
  const size_t n_rows = n_tokens_ - contents.n_left;
  QUIRE_CHECK(n_sealed * kTokensPerPage <= n_rows && (layout.seals || n_sealed == 0));
  const auto filled = [&](size_t n_bytes) {
    PageRef page = pool_->allocate(n_bytes);
    fill({page->data, n_bytes});
    return page;
  };
  if ((n_sealed > 0 || contents.n_left > 0) && layout.sink_tokens > 0) {
    sinks_[layer] = filled(layout.sink_bytes());
  }
  if (n_sealed > 0 && layout.keeps_rows) {
    auto kept = std::make_shared<KeptRows>(contents.kept_positions, layout.open.n_kv_heads, n_sealed);
    kept->page = filled(layout.open.page_bytes());
    kept_[layer] = std::move(kept);
  }
  if (layout.n_exact_keys(n_sealed) > 0) {
    auto keys = reserved_keys(layer, n_sealed);
    keys->rows = filled(layout.exact_key_bytes(n_sealed));
    exact_keys_[layer] = std::move(keys);
  }
  for (size_t i = 0; i < layout.sealed.index_blocks(n_sealed); ++i) {
    index_blocks_[layer].push_back(filled(layout.sealed.index_block_bytes()));
  }
  for (size_t i = 0; i < pages_for(n_rows); ++i) {
    const bool sealed = i < n_sealed;
    if (sealed && layout.sealed.outside) {
      std::vector<std::byte> whole(layout.sealed.page_bytes());
      fill(whole);
      pages_[layer].push_back(move_out(layer, whole));
      continue;
    }
    pages_[layer].push_back(filled(sealed ? layout.sealed.page_bytes() : layout.open.page_bytes()));
    pages_[layer].back()->sealed = sealed;
  }
  left_[layer] = contents.n_left;
}

void Store::restore(size_t n_tokens, std::span<const LayerContents> contents, const Fill& fill) {
  QUIRE_CHECK(n_tokens_ == 0 && contents.size() == n_layers());
  Store made(layouts_, *pool_, tier_);
  made.n_tokens_ = n_tokens;
  for (size_t layer = 0; layer < n_layers(); ++layer) made.restore_layer(layer, contents[layer], fill);
  *this = std::move(made);
}

}  // namespace quire
