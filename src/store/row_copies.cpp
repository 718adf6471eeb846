#include "store/row_copies.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "kernels/ops.h"
#include "store/staged_rows.h"
#include "store/store.h"

namespace quire {

size_t CopyTable::put(size_t page) {
  const auto slot = static_cast<size_t>(std::find(slots_.begin(), slots_.end(), kFree) - slots_.begin());
  put(page, slot);
  return slot;
}

void CopyTable::put(size_t page, size_t slot) {
  QUIRE_CHECK(page_tokens_ > 0);
  slots_.resize(std::max(slots_.size(), slot + 1), kFree);
  lanes_.resize(pages_for(slots_.size(), page_tokens_), 0);
  QUIRE_CHECK(slots_[slot] == kFree);
  slots_[slot] = static_cast<uint32_t>(page);
  mark(page, slot, true);
}

void CopyTable::remove(size_t page) {
  const auto found = std::find(slots_.begin(), slots_.end(), static_cast<uint32_t>(page));
  QUIRE_CHECK(found != slots_.end());
  *found = kFree;
  mark(page, static_cast<size_t>(found - slots_.begin()), false);
}

void CopyTable::mark(size_t page, size_t slot, bool on) {
  const size_t first = page * page_tokens_;
  const size_t first_lane = slot % slots_per_page() * page_tokens_;
  words_.resize(std::max(words_.size(), (first + page_tokens_ - 1) / 64 + 1), 0);
  for (size_t i = first < sink_tokens_ ? sink_tokens_ - first : 0; i < page_tokens_; ++i) {
    const uint64_t token_bit = uint64_t{1} << (first + i) % 64;
    const uint64_t lane_bit = uint64_t{1} << (first_lane + i);
    uint64_t& word = words_[(first + i) / 64];
    uint64_t& lane = lanes_[slot / slots_per_page()];
    word = on ? word | token_bit : word & ~token_bit;
    lane = on ? lane | lane_bit : lane & ~lane_bit;
    n_rows_ = on ? n_rows_ + 1 : n_rows_ - 1;
  }
  n_pages_ = lanes_.size();
  while (n_pages_ > 0 && lanes_[n_pages_ - 1] == 0) --n_pages_;
}

void CopyTable::clear() { *this = CopyTable(page_tokens_, sink_tokens_); }

void CopyTable::clear_levels(uint8_t* levels) const {
  for (const uint32_t page : slots_) {
    if (page != kFree) std::fill_n(levels + page * page_tokens_, page_tokens_, uint8_t{0});
  }
}

// Until all copies have been made once, room for them is counted as taken by every step: which rows a step
// promotes is known only behind it.
uint64_t Store::copy_growth(size_t layer, size_t n_tokens) const {
  const LayerLayout& layout = layouts_[layer];
  if (layout.copy_slots == 0 || layout.sealed_pages(n_tokens) == 0) return 0;
  const std::vector<PageRef>& pages = copy_pages_[layer];
  const auto n_own = static_cast<uint64_t>(
      std::count_if(pages.begin(), pages.end(), [](const PageRef& page) { return page.use_count() == 1; }));
  const uint64_t n_own_bytes = n_own * layout.open.page_bytes();
  return std::max(layout.copy_bytes(layout.sealed_pages(n_tokens)), n_own_bytes) - n_own_bytes;
}

// Pages that other sequences see are copied first.
Page& Store::writable_copy_page(size_t layer, size_t at) {
  std::vector<PageRef>& pages = copy_pages_[layer];
  while (pages.size() <= at) {
    pages.push_back(pool_->allocate(layouts_[layer].open.page_bytes()));
    std::memset(pages.back()->data, 0, pages.back()->size_bytes);
  }
  if (pages[at].use_count() > 1) {
    PageRef own = pool_->allocate(pages[at]->size_bytes);
    std::memcpy(own->data, pages[at]->data, own->size_bytes);
    pages[at] = std::move(own);
  }
  return *pages[at];
}

void Store::apply(std::span<const Move> moves, const std::function<HeadFrames(size_t, size_t)>& frames) {
  for (const Move& move : moves) {
    if (move.kind == Move::Kind::kForget) {
      copies_.remove(move.page);
      continue;
    }
    make_copy(move.page, copies_.put(move.page), frames);
  }
}

void Store::restore_copies(std::span<const uint32_t> slots,
                           const std::function<HeadFrames(size_t, size_t)>& frames) {
  QUIRE_CHECK(copies_.n_rows() == 0);
  for (size_t slot = 0; slot < slots.size(); ++slot) {
    if (slots[slot] == CopyTable::kFree) continue;
    copies_.put(slots[slot], slot);
    make_copy(slots[slot], slot, frames);
  }
}

void Store::make_copy(size_t page, size_t slot, const std::function<HeadFrames(size_t, size_t)>& frames) {
  for (size_t layer = 0; layer < n_layers(); ++layer) {
    if (layouts_[layer].copy_slots == 0) continue;
    Page& to = writable_copy_page(layer, slot / copies_.slots_per_page());
    for (size_t head = 0; head < layouts_[layer].open.n_kv_heads; ++head) {
      decode_copy(layer, head, page, slot, frames(layer, head), to);
    }
  }
}

namespace {

// Rows [64][head_dim] of a sealed page of one KV head, as they were outside the frame.
struct DecodedPage {
  std::vector<float> keys;
  std::vector<float> values;
};

DecodedPage decode_page(const LayerView& view, size_t kv_head, size_t page, uint64_t rows,
                        const HeadFrames& frames) {
  const SealedLayout& layout = view.layer->sealed;
  const size_t dim = layout.head_dim;
  const size_t n_values = kTokensPerPage * dim + kSpareBytes / sizeof(float);
  DecodedPage decoded{std::vector<float>(n_values), std::vector<float>(n_values)};
  std::vector<float> turned(n_values);  // keys [head_dim][64]
  StagedRows staged;
  staged.load(view, kv_head, page, rows, PieceUse::kSelected);
  const KeyPage key_page = {view.index(kv_head, page), reinterpret_cast<const uint8_t*>(staged.keys(page))};
  ops().codes.open_keys[static_cast<size_t>(layout.keys.code)](*frames.key_book, static_cast<int>(dim),
                                                               key_page, turned.data());
  ops().codes.open_values[static_cast<size_t>(layout.values.code)](
      *frames.value_book, static_cast<int>(dim), reinterpret_cast<const uint8_t*>(staged.values(page)), rows,
      decoded.values.data());
  for (size_t t = 0; t < kTokensPerPage; ++t) {
    if ((rows >> t & 1) == 0) continue;
    float* key = decoded.keys.data() + t * dim;
    float* value = decoded.values.data() + t * dim;
    for (size_t d = 0; d < dim; ++d) key[d] = turned[d * kTokensPerPage + t];
    if (frames.key_framed) row_from_frame(frames.key, key, key);
    if (frames.value_framed) row_from_frame(frames.value, value, value);
  }
  return decoded;
}

}  // namespace

// A small page may lie in two pages of the store.
void Store::decode_copy(size_t layer, size_t kv_head, size_t page, size_t slot, const HeadFrames& frames,
                        Page& to) {
  const LayerView view = this->view(layer, n_tokens_);
  const RowLayout& layout = layouts_[layer].open;
  const size_t dim = layout.head_dim;
  const size_t lane = slot % copies_.slots_per_page() * copies_.page_tokens();
  const size_t end = (page + 1) * copies_.page_tokens();
  for (size_t token = page * copies_.page_tokens(); token < end;) {
    const size_t at = token / kTokensPerPage;
    const size_t row = token % kTokensPerPage;
    const size_t n = std::min(end - token, kTokensPerPage - row);
    QUIRE_CHECK(pages_[layer][at]->sealed);
    const uint64_t rows = (~uint64_t{0} >> (kTokensPerPage - n)) << row;
    const DecodedPage decoded = decode_page(view, kv_head, at, rows, frames);
    const auto first_lane = static_cast<int>(lane + token - page * copies_.page_tokens());
    ops().store_keys[static_cast<size_t>(layout.key_format)](to.data + layout.key_offset(kv_head), first_lane,
                                                             static_cast<int>(n), static_cast<int>(dim),
                                                             decoded.keys.data() + row * dim, dim);
    ops().store_values[static_cast<size_t>(layout.value_format)](
        to.data + layout.value_offset(kv_head), first_lane, static_cast<int>(n), static_cast<int>(dim),
        decoded.values.data() + row * dim, dim);
    token += n;
  }
}

}  // namespace quire
