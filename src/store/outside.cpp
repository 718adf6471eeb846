#include "store/outside.h"

#include <cstring>
#include <utility>

#include "base/error.h"
#include "store/store.h"

namespace quire {

OutsideWindow::OutsideWindow(Tier& tier, const PieceLayout& layout, size_t n_pages, MemoryAccount& account)
    : tier_(tier),
      layout_(layout),
      slab_bytes_(tier.slab_bytes(layout)),
      records_(n_pages * slab_bytes_, tier.name(), account) {
  for (size_t i = 0; i < n_pages; ++i) pages_.push_back(tier.place(layout));
}

void OutsideWindow::put(size_t page, size_t head, const std::byte* rows) {
  pack_head(layout_, pages_[page]->number, head, rows, records_.data() + page * slab_bytes_);
}

std::vector<std::shared_ptr<OutsidePage>> OutsideWindow::write() {
  std::vector<std::byte*> records;
  for (size_t i = 0; i < pages_.size(); ++i) records.push_back(records_.data() + i * slab_bytes_);
  tier_.write(pages_, records);
  return std::move(pages_);
}

PageRef Store::page_beside(size_t layer, OutsidePageRef outside) const {
  PageRef page = pool_->allocate(layouts_[layer].sealed.memory_bytes());
  page->sealed = true;
  page->outside = std::move(outside);
  return page;
}

// whole: a sealed page as it lies in memory where there is no tier.
PageRef Store::move_out(size_t layer, std::span<const std::byte> whole) const {
  const SealedLayout& layout = layouts_[layer].sealed;
  OutsideWindow window(*tier_, layout.pieces(), 1, pool_->account());
  for (size_t head = 0; head < layout.n_kv_heads; ++head) {
    window.put(0, head, whole.data() + layout.key_offset(head));
  }
  PageRef page = page_beside(layer, window.write()[0]);
  tier_->check();
  std::memcpy(page->data, whole.data() + layout.n_kv_heads * layout.head_bytes(), page->size_bytes);
  return page;
}

namespace {

// All heads' rows of a page: to [kv_head][head_bytes].
void load_page(Tier& tier, const Page& page, const SealedLayout& layout, std::byte* to) {
  std::vector<PieceRead> reads;
  for (size_t head = 0; head < layout.n_kv_heads; ++head) {
    reads.push_back({&page.outside, head, ~uint64_t{0}, to + layout.key_offset(head)});
  }
  tier.load(reads, PieceUse::kSwept);
  tier.check();
}

}  // namespace

// Exact pages first..last - 1 as open ones again.
std::vector<PageRef> Store::opened_pages(size_t layer, size_t first, size_t last) const {
  const LayerLayout& layout = layouts_[layer];
  std::vector<PageRef> opened;
  for (size_t i = first; i < last; ++i) {
    const Page& page = *pages_[layer][i];
    PageRef open = pool_->allocate(layout.open.page_bytes());
    load_page(*tier_, page, layout.sealed, open->data);
    std::memcpy(open->data + layout.open.digest_offset(0), page.data, page.size_bytes);
    opened.push_back(std::move(open));
  }
  return opened;
}

// As it would lie in memory.
void Store::visit_page(size_t layer, const Page& page,
                       const std::function<void(std::span<const std::byte>)>& visit) const {
  if (page.outside == nullptr) return visit({page.data, page.size_bytes});
  const SealedLayout& layout = layouts_[layer].sealed;
  std::vector<std::byte> whole(layout.page_bytes());
  load_page(*tier_, page, layout, whole.data());
  std::memcpy(whole.data() + layout.n_kv_heads * layout.head_bytes(), page.data, page.size_bytes);
  visit(whole);
}

}  // namespace quire
