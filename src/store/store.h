// The rows of one sequence: for every layer a list of pages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "format/row_format.h"
#include "store/page.h"

namespace quire {

constexpr size_t kTokensPerPage = 64;

// Shape of the keys and values of one layer. Every KV head has its keys as [head_dim][64] and its values
// as [64][head_dim], one after the other in the page:
//
//   page: | keys of head 0 | values of head 0 | keys of head 1 | values of head 1 | ...
struct RowLayout {
  size_t n_kv_heads = 0;
  size_t head_dim = 0;
  Format key_format = Format::kF16;
  Format value_format = Format::kF16;

  size_t key_bytes() const { return row_bytes(key_format, kTokensPerPage * head_dim); }
  size_t value_bytes() const { return row_bytes(value_format, kTokensPerPage * head_dim); }
  size_t head_bytes() const { return key_bytes() + value_bytes(); }
  size_t page_bytes() const { return n_kv_heads * head_bytes(); }
  size_t token_bytes() const { return page_bytes() / kTokensPerPage; }
  size_t key_offset(size_t kv_head) const { return kv_head * head_bytes(); }
  size_t value_offset(size_t kv_head) const { return kv_head * head_bytes() + key_bytes(); }
};

// What readers see of one layer: valid until the store changes.
struct LayerView {
  const RowLayout* layout;
  std::span<const PageRef> pages;
  size_t n_tokens;

  const std::byte* keys(size_t kv_head, size_t page) const { return pages[page]->data + layout->key_offset(kv_head); }
  const std::byte* values(size_t kv_head, size_t page) const {
    return pages[page]->data + layout->value_offset(kv_head);
  }
};

// Owns the pages of a sequence. Growth is in two steps, so that layers can be written in any order and by
// several threads: extend() makes room on all layers, commit() makes the rows part of the sequence.
class Store {
 public:
  // One layout per layer; the pool outlives the store.
  Store(std::vector<RowLayout> layouts, PagePool& pool);

  size_t n_layers() const { return layouts_.size(); }
  size_t n_tokens() const { return n_tokens_; }
  const RowLayout& layout(size_t layer) const { return layouts_[layer]; }

  // Room for n_new tokens behind the committed ones, all layers. On Error (budget) nothing has changed.
  // A shared last page that would be written is copied first.
  void extend(size_t n_new);
  // The committed tokens become n_tokens() + n_new.
  void commit(size_t n_new);
  // Forgets all tokens from n_tokens on, and the pages that held only these.
  void crop(size_t n_tokens);
  // A second sequence with the same tokens; pages are shared.
  Store fork() const { return *this; }

  // Writes rows first..first + n - 1 of one KV head; they lie in the room made by extend().
  // k and v are [n][head_dim] with ld floats from row to row.
  void write(size_t layer, size_t kv_head, size_t first, size_t n, const float* k, const float* v, size_t ld);

  // Readers see `n_visible` tokens: the committed ones, or more while a step is under way.
  LayerView view(size_t layer, size_t n_visible) const { return {&layouts_[layer], pages_[layer], n_visible}; }

  PagePool& pool() const { return *pool_; }
  // Bytes of all pages of this sequence, shared ones counted in full.
  uint64_t size_bytes() const;

 private:
  std::vector<RowLayout> layouts_;
  PagePool* pool_;
  std::vector<std::vector<PageRef>> pages_;  // [layer][page]
  size_t n_tokens_ = 0;
};

}  // namespace quire
