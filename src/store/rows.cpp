// Rows of open pages that change places or leave.
#include <cstring>
#include <memory>

#include "base/error.h"
#include "store/page_count.h"
#include "store/store.h"

namespace quire {

namespace {

// One row of one KV head, wherever its page is.
struct RowPlace {
  std::byte* head;  // the head's keys in the page
  size_t slot;
};

// Keys lie [head_dim][64] in a page: a row of them is a column.
void copy_key(const RowLayout& layout, const RowPlace& from, const RowPlace& to) {
  const size_t size = info(layout.key_format).value_bytes;
  for (size_t d = 0; d < layout.head_dim; ++d) {
    std::memcpy(to.head + (d * kTokensPerPage + to.slot) * size,
                from.head + (d * kTokensPerPage + from.slot) * size, size);
  }
}

void copy_value(const RowLayout& layout, const RowPlace& from, const RowPlace& to) {
  const size_t n_bytes = row_bytes(layout.value_format, layout.head_dim);
  std::memcpy(to.head + layout.key_bytes() + to.slot * n_bytes,
              from.head + layout.key_bytes() + from.slot * n_bytes, n_bytes);
}

// Row `row` of pages that start at `first`.
RowPlace place(std::span<const PageRef> pages, const RowLayout& layout, size_t kv_head, size_t row) {
  return {pages[row / kTokensPerPage]->data + layout.key_offset(kv_head), row % kTokensPerPage};
}

}  // namespace

void Store::move_row(size_t layer, size_t kv_head, size_t from, size_t to) const {
  const RowLayout& layout = layouts_[layer].open;
  const std::span<const PageRef> open = std::span(pages_[layer]).subspan(view(layer, n_tokens_).n_sealed());
  const RowPlace source = place(open, layout, kv_head, from);
  const RowPlace target = place(open, layout, kv_head, to);
  copy_key(layout, source, target);
  copy_value(layout, source, target);
}

void Store::copy_row(size_t layer, size_t kv_head, size_t position, size_t slot, KeptRows& kept) const {
  const RowLayout& layout = layouts_[layer].open;
  const RowPlace source = place(pages_[layer], layout, kv_head, position);
  const RowPlace target = place({&kept.page, 1}, layout, kv_head, slot);
  copy_key(layout, source, target);
  copy_value(layout, source, target);
}

void Store::reorder_rows(size_t layer, size_t kv_head, std::span<const uint32_t> order) const {
  const RowLayout& layout = layouts_[layer].open;
  const std::span<const PageRef> open = std::span(pages_[layer]).subspan(view(layer, n_tokens_).n_sealed());
  const size_t n_pages = pages_for(order.size());
  auto before = std::make_unique<std::byte[]>(n_pages * layout.head_bytes());
  for (size_t page = 0; page < n_pages; ++page) {
    std::memcpy(before.get() + page * layout.head_bytes(), open[page]->data + layout.key_offset(kv_head),
                layout.head_bytes());
  }
  for (size_t i = 0; i < order.size(); ++i) {
    if (order[i] == i) continue;
    QUIRE_DCHECK(order[i] < order.size());
    const RowPlace from = {before.get() + order[i] / kTokensPerPage * layout.head_bytes(),
                           order[i] % kTokensPerPage};
    const RowPlace to = place(open, layout, kv_head, i);
    copy_key(layout, from, to);
    copy_value(layout, from, to);
  }
}

void Store::drop_rows(size_t layer, size_t n_open, size_t n_kept) {
  QUIRE_CHECK(n_kept <= n_open);
  left_[layer] += n_open - n_kept;
  std::vector<PageRef>& pages = pages_[layer];
  const size_t n_sealed = view(layer, n_tokens_).n_sealed();
  pages.resize(n_sealed + pages_for(n_kept));
}

void Store::keep_sinks(size_t layer) {
  if (layouts_[layer].sink_tokens == 0) return;
  PageRef sinks = pool_->allocate(layouts_[layer].sink_bytes());
  copy_sinks(layer, *pages_[layer][0], *sinks);
  sinks_[layer] = std::move(sinks);
}

}  // namespace quire
