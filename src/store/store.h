// The rows of one sequence: for every layer a list of pages.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/error.h"
#include "store/exact_keys.h"
#include "store/head_frames.h"
#include "store/kept_rows.h"
#include "store/layouts.h"
#include "store/page.h"
#include "store/row_copies.h"
#include "tier/outside_page.h"

namespace quire {

// What readers see of one layer: valid until the store changes.
struct LayerView {
  const RowLayout* layout;  // of the open pages
  std::span<const PageRef> pages;
  size_t n_tokens;                     // rows in the pages
  const LayerLayout* layer = nullptr;  // needed where pages are sealed
  const Page* sinks = nullptr;         // nullptr while no page is sealed
  const KeptRows* kept = nullptr;      // the same
  std::span<const PageRef> index_blocks{};
  const ExactKeys* exact_keys = nullptr;
  const CopyTable* copies = nullptr;  // nullptr while no row has a copy
  std::span<const PageRef> copy_pages{};
  size_t left_pages = 0;  // of a layer with a window: pages of the sequence before the first of `pages`

  // 0: queries see all rows up to their own.
  size_t window_tokens() const { return layer != nullptr ? layer->window_tokens : 0; }
  float score_softcap() const { return layer != nullptr ? layer->score_softcap : 0; }
  // The first of the layer's rows that a query at this row of it sees.
  size_t first_seen(size_t row) const {
    const size_t window = window_tokens();
    return window == 0 || row < window ? 0 : row + 1 - window;
  }

  // Sealed pages come first.
  size_t n_sealed() const {
    const auto is_sealed = [](const PageRef& page) { return page->sealed; };
    return static_cast<size_t>(std::partition_point(pages.begin(), pages.end(), is_sealed) - pages.begin());
  }
  // Where its rows are in memory; of those outside see StagedRows.
  const std::byte* keys(size_t kv_head, size_t page) const {
    QUIRE_DCHECK(!is_outside(page));
    const size_t offset =
        pages[page]->sealed ? layer->sealed.key_offset(kv_head) : layout->key_offset(kv_head);
    return pages[page]->data + offset;
  }
  bool is_outside(size_t page) const { return pages[page]->outside != nullptr; }
  // nullptr: keys without an index.
  const uint8_t* index(size_t kv_head, size_t page) const {
    if (index_blocks.empty()) return nullptr;
    return reinterpret_cast<const uint8_t*>(index_blocks[page / kPagesPerIndexBlock]->data) +
           layer->sealed.index_offset(kv_head, page);
  }
  const std::byte* values(size_t kv_head, size_t page) const {
    QUIRE_DCHECK(!is_outside(page));
    const size_t offset =
        pages[page]->sealed ? layer->sealed.value_offset(kv_head) : layout->value_offset(kv_head);
    return pages[page]->data + offset;
  }
  const std::byte* digest(size_t kv_head, size_t page) const {
    const size_t offset =
        pages[page]->sealed ? layer->sealed.digest_offset(kv_head) : layout->digest_offset(kv_head);
    return pages[page]->data + offset;
  }
  const std::byte* sink_keys(size_t kv_head) const {
    return sinks->data + kv_head * layer->sink_head_bytes();
  }
  const std::byte* sink_values(size_t kv_head) const { return sink_keys(kv_head) + layer->sink_key_bytes(); }
  // Exact rows of sealed pages, which are not read in their coded form.
  size_t n_exact_sealed() const {
    return (sinks ? layer->sink_tokens : 0) + (kept ? kept->n : 0) + (copies ? copies->n_rows() : 0);
  }
  // Of the tokens of a sealed page: those that are read in their coded form.
  uint64_t coded_word(size_t kv_head, size_t page) const {
    const uint64_t sink_word = page == 0 ? (uint64_t{1} << layer->sink_tokens) - 1 : 0;
    return ~(sink_word | (kept ? kept->word(kv_head, page) : 0) | (copies ? copies->word(page) : 0));
  }
  // Pages of such rows beside the sealed ones, in the layout of open pages: kept rows, then copies.
  size_t n_beside() const { return (kept ? 1 : 0) + (copies ? copies->n_pages() : 0); }
  const std::byte* beside(size_t i) const {
    if (kept != nullptr) return i == 0 ? kept->page->data : copy_pages[i - 1]->data;
    return copy_pages[i]->data;
  }
  // The tokens that they hold.
  uint64_t beside_word(size_t i) const {
    if (kept != nullptr && i == 0) return ~uint64_t{0} >> (kTokensPerPage - kept->n);
    return copies->lanes(kept != nullptr ? i - 1 : i);
  }
};

// What a layer holds, apart from the bytes of its memory.
struct LayerContents {
  size_t n_sealed = 0;  // coded pages
  size_t n_left = 0;    // tokens whose rows are in no page
  // [kv_head][n], rising: rows that stay exact, where the layer keeps some and has coded pages.
  std::vector<uint32_t> kept_positions = {};
};

class OutsideWindow;  // store/outside.h

// Owns the pages of a sequence. Growth is in two steps, so that layers can be written in any order and by
// several threads: extend() makes room on all layers, commit() makes the rows part of the sequence.
class Store {
 public:
  // One layout per layer; the pool outlives the store. The tier is for layers whose sealed pages lie outside.
  Store(std::vector<LayerLayout> layouts, PagePool& pool, std::shared_ptr<Tier> tier = nullptr);
  // A store whose pages all stay open.
  Store(const std::vector<RowLayout>& layouts, PagePool& pool);

  size_t n_layers() const { return layouts_.size(); }
  size_t n_tokens() const { return n_tokens_; }
  const RowLayout& layout(size_t layer) const { return layouts_[layer].open; }
  const LayerLayout& layer_layout(size_t layer) const { return layouts_[layer]; }

  // Room for n_new tokens behind the committed ones, all layers. On Error (budget) nothing has changed.
  // A shared last page that would be written is copied first.
  void extend(size_t n_new);
  // The same for one layer. Memory is asked for as it is: a budget is checked before, see peak_growth().
  void extend_layer(size_t layer, size_t n_new);
  // Most bytes by which the pool's pages grow during a step of n_new tokens, in which room is made on all
  // layers at once or layer by layer, and each layer codes its due pages when it is done. Exact: pages that
  // are shared with other sequences are copied, and stay when they are coded here.
  uint64_t peak_growth(size_t n_new, bool at_once) const;

  // Sealing, when the layer holds n_tokens: which pages are due, room for their coded form, the coding of one
  // page and head (by any thread; pages and heads are independent), and the exchange of the pages.
  struct Sealing {
    size_t first = 0;  // pages first..last - 1
    size_t last = 0;
    std::vector<PageRef> coded;
    std::vector<PageRef> index_blocks;      // of pages first..last - 1; the first may be in use already
    PageRef sinks;                          // if page 0 is among them
    std::shared_ptr<OutsideWindow> window;  // of pages that leave for a tier
  };
  // Of pages that leave for a tier, not more than a window takes: it is to be called again until none is due.
  Sealing begin_sealing(size_t layer, size_t n_tokens) const;
  void seal(const Sealing& sealing, size_t layer, size_t page, size_t kv_head,
            const HeadFrames& frames) const;
  void end_sealing(Sealing&& sealing, size_t layer);
  // Before the first sealing of a layer that keeps rows: copies them. positions [kv_head][n], at most 64 a
  // head, all of the n_pages pages that are due.
  void keep_rows(size_t layer, std::vector<uint32_t> positions, size_t n_pages);

  // The keys of these rows, of which n_pages pages are or are about to be sealed, are exact from now on.
  // Those that are sealed already were so before.
  void keep_exact_keys(size_t layer, std::vector<uint32_t> positions, size_t n_pages);

  // Rows of a layer's open pages change places, once a step has written its own.
  // Row i becomes what row order[i] was; each row is named once. By head, by any thread.
  void reorder_rows(size_t layer, size_t kv_head, std::span<const uint32_t> order) const;
  // Row `from` takes the place of row `to`.
  void move_row(size_t layer, size_t kv_head, size_t from, size_t to) const;
  // Of a layer's n_open rows the first n_kept stay, and the pages that hold only others go.
  void drop_rows(size_t layer, size_t n_open, size_t n_kept);
  // The first rows of the first page are copied beside the pages, as sinks.
  void keep_sinks(size_t layer);
  // Of a layer with a window, when it holds n_tokens: the pages that no later query sees go.
  void leave_window(size_t layer, size_t n_tokens);
  // Tokens whose rows are not in the layer's pages: dropped ones, sinks that were kept beside, and those
  // behind a window.
  size_t left_tokens(size_t layer) const { return left_[layer]; }

  // The committed tokens become n_tokens() + n_new.
  void commit(size_t n_new);
  // So many first tokens are coded on some layer, or cannot be told from others as rows have moved.
  size_t coded_tokens() const;
  // The least number of tokens that crop() cuts to, other than 0: coded_tokens(), or more where a layer's
  // window would miss rows that have left.
  size_t fixed_tokens() const;
  // Forgets all tokens from n_tokens on, and the pages that held only these. Sealed pages stay sealed, and
  // what has left does not come back: a cut below fixed_tokens() is refused with an Error that says why.
  void crop(size_t n_tokens);
  // A second sequence with the same tokens; pages are shared.
  Store fork() const { return *this; }

  // To be kept elsewhere: a layer's memory piece by piece, its sinks if they lie beside its pages, its kept
  // rows, its exact keys, the blocks of its index and then its pages in order. What no row takes of the last
  // page is given as zeros, and its digests as if no other rows had ever come.
  void visit_blocks(size_t layer, const std::function<void(std::span<const std::byte>)>& visit) const;
  // The way back, for a store without tokens, in pages of its own. `fill` gets the pieces to write, layer by
  // layer in the order of visit_blocks(). On Error nothing has changed.
  using Fill = std::function<void(std::span<std::byte>)>;
  void restore(size_t n_tokens, std::span<const LayerContents> contents, const Fill& fill);

  // Makes and forgets copies of coded rows, in all layers that have them. frames: of a layer and KV head.
  void apply(std::span<const Move> moves, const std::function<HeadFrames(size_t, size_t)>& frames);
  // The way back, for a store without copies: what lies in each slot.
  void restore_copies(std::span<const uint32_t> slots,
                      const std::function<HeadFrames(size_t, size_t)>& frames);
  const CopyTable& copies() const { return copies_; }

  // Writes rows first..first + n - 1 of one KV head; they lie in the room made by extend().
  // k and v are [n][head_dim] with ld floats from row to row.
  void write(size_t layer, size_t kv_head, size_t first, size_t n, const float* k, const float* v, size_t ld);

  // To be written together with the rows of an open page.
  std::byte* open_digest(size_t layer, size_t kv_head, size_t page) {
    return pages_[layer][page]->data + layouts_[layer].open.digest_offset(kv_head);
  }

  // Readers see `n_visible` tokens: the committed ones, or more while a step is under way.
  LayerView view(size_t layer, size_t n_visible) const {
    return {&layouts_[layer].open, pages_[layer],      n_visible - left_[layer], &layouts_[layer],
            sinks_[layer].get(),   kept_[layer].get(), index_blocks_[layer],     exact_keys_[layer].get(),
            copies_of(layer),      copy_pages_[layer], left_pages(layer)};
  }

  PagePool& pool() const { return *pool_; }
  // nullptr: everything lies in memory.
  Tier* tier() const { return tier_.get(); }
  const std::shared_ptr<Tier>& shared_tier() const { return tier_; }
  // Bytes of all pages of this sequence in memory, shared ones counted in full.
  uint64_t size_bytes() const;

 private:
  // What a layer's pages take more: for room, and for the coded form of what is due. `freed`: what sealing
  // gives back afterwards.
  struct Growth {
    uint64_t room = 0;
    uint64_t coded = 0;
    uint64_t freed = 0;
  };
  Growth growth(size_t layer, size_t n_new) const;
  Growth dropping_growth(size_t layer, size_t n_new, Growth growth) const;
  uint64_t window_freed(size_t layer, size_t n_new) const;
  void check_windows(size_t n_tokens) const;
  size_t left_pages(size_t layer) const {
    return layouts_[layer].window_tokens > 0 ? left_[layer] / kTokensPerPage : 0;
  }
  uint64_t index_growth(size_t layer, size_t n_sealed, size_t n_to_seal) const;
  // Of the pages from `first` on: the blocks that hold their index, which no other sequence sees.
  std::vector<PageRef> writable_index_blocks(size_t layer, size_t first, size_t last) const;
  bool has_room(size_t layer, size_t n_new) const;
  // The first page that a step may write.
  size_t first_written(size_t layer) const;
  size_t pages_with(size_t layer, size_t n_new) const;
  std::vector<PageRef> grown_layer(size_t layer, size_t n_new) const;
  void copy_sinks(size_t layer, const Page& page, Page& sinks) const;
  void copy_row(size_t layer, size_t kv_head, size_t position, size_t slot, KeptRows& kept) const;
  std::shared_ptr<ExactKeys> reserved_keys(size_t layer, size_t n_sealed) const;
  void restore_layer(size_t layer, const LayerContents& contents, const Fill& fill);
  const CopyTable* copies_of(size_t layer) const {
    return layouts_[layer].copy_slots > 0 && copies_.n_rows() > 0 ? &copies_ : nullptr;
  }
  uint64_t copy_growth(size_t layer, size_t n_tokens) const;
  void make_copy(size_t page, size_t slot, const std::function<HeadFrames(size_t, size_t)>& frames);
  Page& writable_copy_page(size_t layer, size_t at);
  void decode_copy(size_t layer, size_t kv_head, size_t page, size_t slot, const HeadFrames& frames,
                   Page& to);

  PageRef page_beside(size_t layer, OutsidePageRef outside) const;
  PageRef move_out(size_t layer, std::span<const std::byte> whole) const;
  std::vector<PageRef> opened_pages(size_t layer, size_t first, size_t last) const;
  void visit_page(size_t layer, const Page& page,
                  const std::function<void(std::span<const std::byte>)>& visit) const;

  std::shared_ptr<Tier> tier_;  // outlives the pages
  std::vector<LayerLayout> layouts_;
  PagePool* pool_;
  std::vector<std::vector<PageRef>> pages_;            // [layer][page]
  std::vector<std::vector<PageRef>> index_blocks_;     // [layer][page / kPagesPerIndexBlock], of sealed pages
  std::vector<PageRef> sinks_;                         // [layer], empty until the first page is sealed
  std::vector<std::shared_ptr<const KeptRows>> kept_;  // [layer], the same
  std::vector<std::shared_ptr<const ExactKeys>> exact_keys_;  // [layer], the same
  std::vector<size_t> left_;                                  // [layer] tokens that are in no page of it
  CopyTable copies_;                                          // of all layers that have copies
  std::vector<std::vector<PageRef>> copy_pages_;              // [layer][page of copies]
  size_t n_tokens_ = 0;
  // The same tier once more: what is assigned to member by member lets go of its pages before this.
  std::shared_ptr<Tier> tier_of_old_pages_ = tier_;
};

}  // namespace quire
