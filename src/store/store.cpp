#include "store/store.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "kernels/ops.h"
#include "store/outside.h"
#include "store/page_count.h"
#include "store/sealing.h"

namespace quire {

namespace {}  // namespace

Store::Store(std::vector<LayerLayout> layouts, PagePool& pool, std::shared_ptr<Tier> tier)
    : tier_(std::move(tier)),
      layouts_(std::move(layouts)),
      pool_(&pool),
      pages_(layouts_.size()),
      index_blocks_(layouts_.size()),
      sinks_(layouts_.size()),
      kept_(layouts_.size()),
      exact_keys_(layouts_.size()),
      left_(layouts_.size()),
      copy_pages_(layouts_.size()) {
  for (const LayerLayout& layout : layouts_) {
    if (layout.copy_slots > 0) copies_ = CopyTable(layout.copy_tokens, layout.sink_tokens);
    QUIRE_CHECK(!layout.sealed.outside || tier_ != nullptr);
  }
}

namespace {

std::vector<LayerLayout> open_only(const std::vector<RowLayout>& layouts) {
  std::vector<LayerLayout> all(layouts.size());
  for (size_t i = 0; i < layouts.size(); ++i) all[i].open = layouts[i];
  return all;
}

}  // namespace

Store::Store(const std::vector<RowLayout>& layouts, PagePool& pool) : Store(open_only(layouts), pool) {}

size_t Store::first_written(size_t layer) const {
  if (layouts_[layer].moves_rows()) return view(layer, n_tokens_).n_sealed();
  return (n_tokens_ - left_[layer]) / kTokensPerPage;
}

// Pages of the layer once there are n_new more tokens.
size_t Store::pages_with(size_t layer, size_t n_new) const {
  return pages_for(n_tokens_ + n_new - left_[layer]);
}

bool Store::has_room(size_t layer, size_t n_new) const {
  const std::vector<PageRef>& pages = pages_[layer];
  const auto first = static_cast<ptrdiff_t>(std::min(first_written(layer), pages.size()));
  return pages.size() >= pages_with(layer, n_new) &&
         std::all_of(pages.begin() + first, pages.end(),
                     [](const PageRef& page) { return page.use_count() == 1; });
}

void Store::extend(size_t n_new) {
  if (n_new == 0) return;
  bool room = true;
  for (size_t layer = 0; room && layer < n_layers(); ++layer) room = has_room(layer, n_new);
  if (room) return;  // 63 of 64 decode steps
  // To go back, when a budget refuses half-way.
  std::vector<std::vector<PageRef>> before;
  try {
    for (size_t layer = 0; layer < n_layers(); ++layer) {
      std::vector<PageRef> grown = grown_layer(layer, n_new);
      before.push_back(std::exchange(pages_[layer], std::move(grown)));
    }
  } catch (...) {
    std::move(before.begin(), before.end(), pages_.begin());
    throw;
  }
}

// The layer's pages with room for n_new more tokens. Pages behind the first that will be written are there
// when an earlier extend() was not followed by a commit().
std::vector<PageRef> Store::grown_layer(size_t layer, size_t n_new) const {
  const size_t n_pages = pages_with(layer, n_new);
  std::vector<PageRef> pages = pages_[layer];
  for (size_t i = first_written(layer); i < pages.size(); ++i) {
    // Two holders are the layer's list and this copy of it; a third one is another sequence.
    if (pages[i].use_count() <= 2) continue;
    PageRef copy = pool_->allocate(pages[i]->size_bytes);
    std::memcpy(copy->data, pages[i]->data, copy->size_bytes);
    pages[i] = std::move(copy);
  }
  while (pages.size() < n_pages) pages.push_back(pool_->allocate(layouts_[layer].open.page_bytes()));
  return pages;
}

void Store::extend_layer(size_t layer, size_t n_new) {
  if (has_room(layer, n_new)) return;
  pages_[layer] = grown_layer(layer, n_new);
}

Store::Growth Store::growth(size_t layer, size_t n_new) const {
  const LayerLayout& layout = layouts_[layer];
  const std::vector<PageRef>& pages = pages_[layer];
  const size_t n_total = n_tokens_ + n_new;
  const size_t first = first_written(layer);
  const auto shared = [&](size_t page) { return page < pages.size() && pages[page].use_count() > 1; };
  Growth growth;
  const size_t n_pages = pages_with(layer, n_new);
  growth.room = (n_pages - std::min(n_pages, pages.size())) * layout.open.page_bytes();
  for (size_t page = first; n_new > 0 && page < pages.size(); ++page) {
    if (shared(page)) growth.room += layout.open.page_bytes();
  }
  if (layout.window_tokens > 0) {
    growth.freed = window_freed(layer, n_new);
    return growth;
  }
  growth.room += copy_growth(layer, n_total);
  if (layout.drops()) return dropping_growth(layer, n_new, growth);
  const size_t n_sealed = view(layer, n_tokens_).n_sealed();
  const size_t n_to_seal = layout.sealed_pages(n_total);
  if (n_to_seal > n_sealed) {
    growth.coded = index_growth(layer, n_sealed, n_to_seal) + layout.exact_key_bytes(n_to_seal);
    if (exact_keys_[layer].use_count() == 1) growth.freed = layout.exact_key_bytes(n_sealed);
  }
  if (n_to_seal > n_sealed) {
    growth.coded += layout.window_bytes(n_to_seal - n_sealed);
    growth.freed += layout.window_bytes(n_to_seal - n_sealed);
  }
  for (size_t page = n_sealed; page < n_to_seal; ++page) {
    growth.coded += layout.sealed.memory_bytes() + (page == 0 ? layout.beside_bytes() : 0);
    if (page >= first || !shared(page)) growth.freed += layout.open.page_bytes();
  }
  return growth;
}

// Rows that leave give their pages back, and the first time the sinks move out.
Store::Growth Store::dropping_growth(size_t layer, size_t n_new, Growth growth) const {
  const LayerLayout& layout = layouts_[layer];
  const size_t n_rows = n_tokens_ - left_[layer];
  const size_t n_after = layout.rows_after(n_rows, n_new, n_tokens_ + n_new);
  if (n_after == n_rows + n_new) return growth;
  if (sinks_[layer] == nullptr) growth.coded = layout.sink_bytes();
  growth.freed = (pages_with(layer, n_new) - pages_for(n_after)) * layout.open.page_bytes();
  return growth;
}

uint64_t Store::index_growth(size_t layer, size_t n_sealed, size_t n_to_seal) const {
  const SealedLayout& layout = layouts_[layer].sealed;
  const std::vector<PageRef>& blocks = index_blocks_[layer];
  const bool continues = n_sealed % kPagesPerIndexBlock != 0 && !blocks.empty();
  const size_t n_copied = continues && blocks.back().use_count() > 1;
  return (layout.index_blocks(n_to_seal) - layout.index_blocks(n_sealed) + n_copied) *
         layout.index_block_bytes();
}

uint64_t Store::peak_growth(size_t n_new, bool at_once) const {
  std::vector<Growth> layers;
  for (size_t layer = 0; layer < n_layers(); ++layer) layers.push_back(growth(layer, n_new));
  int64_t held = 0;  // negative when coding has given back more than the step has taken
  if (at_once) {
    for (const Growth& layer : layers) held += static_cast<int64_t>(layer.room);
  }
  int64_t most = held;
  for (const Growth& layer : layers) {
    held += static_cast<int64_t>((at_once ? 0 : layer.room) + layer.coded);
    most = std::max(most, held);
    held -= static_cast<int64_t>(layer.freed);
  }
  return static_cast<uint64_t>(most);
}

Store::Sealing Store::begin_sealing(size_t layer, size_t n_tokens) const {
  const LayerLayout& layout = layouts_[layer];
  Sealing sealing;
  sealing.last = layout.sealed_pages(n_tokens);
  sealing.first = std::min(view(layer, n_tokens).n_sealed(), sealing.last);
  if (layout.sealed.outside) {
    sealing.last = std::min(sealing.last, sealing.first + layout.window_pages());
    sealing.window = std::make_shared<OutsideWindow>(*tier_, layout.sealed.pieces(),
                                                     sealing.last - sealing.first, pool_->account());
  }
  for (size_t page = sealing.first; page < sealing.last; ++page) {
    sealing.coded.push_back(pool_->allocate(layout.sealed.memory_bytes()));
    sealing.coded.back()->sealed = true;
  }
  sealing.index_blocks = writable_index_blocks(layer, sealing.first, sealing.last);
  if (sealing.first == 0 && sealing.last > 0 && layout.sink_tokens > 0) {
    sealing.sinks = pool_->allocate(layout.sink_bytes());
    copy_sinks(layer, *pages_[layer][0], *sealing.sinks);
  }
  return sealing;
}

// Slots that hold nothing yet are zeros.
std::vector<PageRef> Store::writable_index_blocks(size_t layer, size_t first, size_t last) const {
  const SealedLayout& layout = layouts_[layer].sealed;
  std::vector<PageRef> blocks;
  if (first == last) return blocks;
  for (size_t i = first / kPagesPerIndexBlock; i < layout.index_blocks(last); ++i) {
    const PageRef* old = i < index_blocks_[layer].size() ? &index_blocks_[layer][i] : nullptr;
    if (old != nullptr && old->use_count() == 1) {
      blocks.push_back(*old);
      continue;
    }
    blocks.push_back(pool_->allocate(layout.index_block_bytes()));
    std::byte* data = blocks.back()->data;
    if (old != nullptr) {
      std::memcpy(data, (*old)->data, layout.index_block_bytes());
    } else {
      std::memset(data, 0, layout.index_block_bytes());
    }
  }
  return blocks;
}

// Keys lie [head_dim][64] in the page and [sink][head_dim] beside the sealed pages.
void Store::copy_sinks(size_t layer, const Page& page, Page& sinks) const {
  const LayerLayout& layout = layouts_[layer];
  const size_t value_size = info(layout.open.key_format).value_bytes;
  for (size_t head = 0; head < layout.open.n_kv_heads; ++head) {
    const std::byte* keys = page.data + layout.open.key_offset(head);
    std::byte* to = sinks.data + head * layout.sink_head_bytes();
    for (size_t token = 0; token < layout.sink_tokens; ++token) {
      for (size_t d = 0; d < layout.open.head_dim; ++d, to += value_size) {
        std::memcpy(to, keys + (d * kTokensPerPage + token) * value_size, value_size);
      }
    }
    std::memcpy(to, page.data + layout.open.value_offset(head), layout.sink_value_bytes());
  }
}

void Store::seal(const Sealing& sealing, size_t layer, size_t page, size_t kv_head,
                 const HeadFrames& frames) const {
  const LayerLayout& layout = layouts_[layer];
  const std::byte* open = pages_[layer][page]->data;
  std::byte* coded = sealing.coded[page - sealing.first]->data;
  std::byte* index = nullptr;
  if (!sealing.index_blocks.empty()) {
    const size_t block = page / kPagesPerIndexBlock - sealing.first / kPagesPerIndexBlock;
    index = sealing.index_blocks[block]->data + layout.sealed.index_offset(kv_head, page);
  }
  std::vector<std::byte> room(layout.sealed.outside ? layout.sealed.head_bytes() + kSpareBytes : 0);
  std::byte* rows = layout.sealed.outside ? room.data() : coded + layout.sealed.key_offset(kv_head);
  seal_keys(layout.open.key_format, layout.sealed.keys, frames, layout.open.head_dim, page * kTokensPerPage,
            open + layout.open.key_offset(kv_head), index, rows);
  seal_values(layout.open.value_format, layout.sealed.values, frames, layout.open.head_dim,
              open + layout.open.value_offset(kv_head), rows + layout.sealed.key_bytes());
  if (sealing.window != nullptr) sealing.window->put(page - sealing.first, kv_head, rows);
  std::memcpy(coded + layout.sealed.digest_offset(kv_head), open + layout.open.digest_offset(kv_head),
              layout.open.digest_bytes);
}

void Store::end_sealing(Sealing&& sealing, size_t layer) {
  if (sealing.window != nullptr) {
    const std::vector<std::shared_ptr<OutsidePage>> outside = sealing.window->write();
    for (size_t i = 0; i < outside.size(); ++i) sealing.coded[i]->outside = outside[i];
    sealing.window.reset();
  }
  for (size_t page = sealing.first; page < sealing.last; ++page) {
    pages_[layer][page] = std::move(sealing.coded[page - sealing.first]);
  }
  std::vector<PageRef>& blocks = index_blocks_[layer];
  for (size_t i = 0, at = sealing.first / kPagesPerIndexBlock; i < sealing.index_blocks.size(); ++i, ++at) {
    if (at == blocks.size()) blocks.emplace_back();
    blocks[at] = std::move(sealing.index_blocks[i]);
  }
  if (sealing.sinks) sinks_[layer] = std::move(sealing.sinks);
}

void Store::commit(size_t n_new) {
  n_tokens_ += n_new;
  QUIRE_CHECK(n_layers() == 0 || n_tokens_ - left_[0] <= pages_[0].size() * kTokensPerPage);
}

size_t Store::coded_tokens() const {
  size_t most = 0;
  for (size_t layer = 0; layer < n_layers(); ++layer) {
    const size_t n_sealed = view(layer, n_tokens_).n_sealed();
    const bool moved = layouts_[layer].drops() || (n_sealed > 0 && layouts_[layer].moves_rows());
    const size_t n_coded = layouts_[layer].sealed.is_exact() ? 0 : n_sealed * kTokensPerPage;
    most = std::max(most, moved ? n_tokens_ : n_coded);
  }
  return most;
}

void Store::crop(size_t n_tokens) {
  QUIRE_CHECK(n_tokens <= n_tokens_);
  if (n_tokens > 0 && n_tokens < coded_tokens()) {
    throw Error("the cache cannot be cut to " + std::to_string(n_tokens) + " tokens: the first " +
                std::to_string(coded_tokens()) + " are coded or have moved");
  }
  if (n_tokens > 0) check_windows(n_tokens);
  // Rows that have left for a tier come back where some of their pages' go. All before anything is cut.
  std::vector<std::vector<PageRef>> open(n_layers());
  const auto n_whole = [&](size_t layer) {
    return n_tokens / kTokensPerPage / layouts_[layer].seal_pages * layouts_[layer].seal_pages;
  };
  for (size_t layer = 0; layer < n_layers() && n_tokens > 0; ++layer) {
    const SealedLayout& sealed = layouts_[layer].sealed;
    const size_t last = std::min(view(layer, n_tokens_).n_sealed(), pages_for(n_tokens));
    if (sealed.outside && sealed.is_exact()) open[layer] = opened_pages(layer, n_whole(layer), last);
  }
  n_tokens_ = n_tokens;
  if (n_tokens == 0) std::fill(left_.begin(), left_.end(), 0);
  for (size_t layer = 0; layer < n_layers(); ++layer) {
    pages_[layer].resize(std::min(pages_[layer].size(), pages_with(layer, 0)));
    for (size_t i = 0; i < open[layer].size(); ++i) {
      pages_[layer][n_whole(layer) + i] = std::move(open[layer][i]);
    }
  }
  if (n_tokens > 0) return;
  std::fill(sinks_.begin(), sinks_.end(), nullptr);
  std::fill(kept_.begin(), kept_.end(), nullptr);
  std::fill(exact_keys_.begin(), exact_keys_.end(), nullptr);
  for (std::vector<PageRef>& blocks : index_blocks_) blocks.clear();
  copies_.clear();
  for (std::vector<PageRef>& pages : copy_pages_) pages.clear();
}

void Store::write(size_t layer, size_t kv_head, size_t first, size_t n, const float* k, const float* v,
                  size_t ld) {
  const RowLayout& layout = layouts_[layer].open;
  const int head_dim = static_cast<int>(layout.head_dim);
  const auto key_format = static_cast<size_t>(layout.key_format);
  const auto value_format = static_cast<size_t>(layout.value_format);
  first -= left_[layer];
  while (n > 0) {
    const size_t slot = first % kTokensPerPage;
    const size_t piece = std::min(n, kTokensPerPage - slot);
    std::byte* page = pages_[layer][first / kTokensPerPage]->data;
    if (slot == 0) std::memset(page + layout.digest_offset(kv_head), 0, layout.digest_bytes);
    ops().store_keys[key_format](page + layout.key_offset(kv_head), static_cast<int>(slot),
                                 static_cast<int>(piece), head_dim, k, ld);
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
  for (const std::vector<PageRef>& blocks : index_blocks_) {
    for (const PageRef& block : blocks) total += block->size_bytes;
  }
  for (const PageRef& sinks : sinks_) total += sinks ? sinks->size_bytes : 0;
  for (const auto& kept : kept_) total += kept ? kept->page->size_bytes : 0;
  for (const auto& keys : exact_keys_) total += keys ? keys->rows->size_bytes : 0;
  for (const std::vector<PageRef>& pages : copy_pages_) {
    for (const PageRef& page : pages) total += page->size_bytes;
  }
  return total;
}

}  // namespace quire
