// How the rows of a layer lie in pages, and which of them are sealed when.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>

#include "format/row_format.h"
#include "format/side_format.h"
#include "store/log_reserve.h"
#include "store/row_copies.h"
#include "tier/piece_layout.h"

namespace quire {

constexpr size_t kTokensPerPage = 64;
// Pages whose index lies together: long runs are read at the full speed of the memory, and few bytes lie
// idle.
constexpr size_t kPagesPerIndexBlock = 8;

// Shape of the keys and values of one layer in open pages, which take rows as they come. Every KV head has
// its keys as [head_dim][64] and its values as [64][head_dim], one after the other in the page:
//
//   page: | keys of head 0 | values of head 0 | keys of head 1 | values of head 1 | ... | digests
//
// A digest, one a KV head, is what a selector notes of the page's keys (policy/digest.h): most have none.
struct RowLayout {
  size_t n_kv_heads = 0;
  size_t head_dim = 0;
  Format key_format = Format::kF16;
  Format value_format = Format::kF16;
  size_t digest_bytes = 0;

  size_t key_bytes() const { return row_bytes(key_format, kTokensPerPage * head_dim); }
  size_t value_bytes() const { return row_bytes(value_format, kTokensPerPage * head_dim); }
  size_t head_bytes() const { return key_bytes() + value_bytes(); }
  size_t page_bytes() const { return n_kv_heads * (head_bytes() + digest_bytes); }
  // Of its rows alone.
  size_t token_bytes() const { return n_kv_heads * head_bytes() / kTokensPerPage; }
  size_t key_offset(size_t kv_head) const { return kv_head * head_bytes(); }
  size_t value_offset(size_t kv_head) const { return kv_head * head_bytes() + key_bytes(); }
  size_t digest_offset(size_t kv_head) const { return n_kv_heads * head_bytes() + kv_head * digest_bytes; }
};

// The same of sealed pages, whose rows are coded, or exact where they leave for a tier. Offsets as in
// RowLayout. The index of keys that have one lies apart, in blocks of several pages:
// [kv_head][page][index_bytes].
struct SealedLayout {
  size_t n_kv_heads = 0;
  size_t head_dim = 0;
  SideFormat keys;
  SideFormat values;
  size_t digest_bytes = 0;
  bool outside = false;  // rows lie in a tier, and of a page only its digests in memory
  bool by_rows = false;  // of these, exact ones: fetched one by one

  size_t index_bytes() const { return index_page_bytes(keys, head_dim); }  // 0: keys without an index
  size_t key_bytes() const { return key_page_bytes(keys, head_dim) - index_bytes(); }
  size_t value_bytes() const { return value_page_bytes(values, head_dim); }
  size_t head_bytes() const { return key_bytes() + value_bytes(); }
  bool is_exact() const { return !keys.coded && !values.coded; }
  // Of its rows and digests, and what of them lies in memory.
  size_t page_bytes() const { return n_kv_heads * (head_bytes() + digest_bytes); }
  size_t memory_bytes() const { return outside ? n_kv_heads * digest_bytes : page_bytes(); }
  PieceLayout pieces() const { return {n_kv_heads, key_bytes(), value_bytes(), by_rows, head_dim}; }
  size_t key_offset(size_t kv_head) const { return kv_head * head_bytes(); }
  size_t value_offset(size_t kv_head) const { return kv_head * head_bytes() + key_bytes(); }
  size_t digest_offset(size_t kv_head) const {
    return (outside ? 0 : n_kv_heads * head_bytes()) + kv_head * digest_bytes;
  }

  size_t index_block_bytes() const { return n_kv_heads * kPagesPerIndexBlock * index_bytes(); }
  size_t index_offset(size_t kv_head, size_t page) const {
    return (kv_head * kPagesPerIndexBlock + page % kPagesPerIndexBlock) * index_bytes();
  }
  size_t index_blocks(size_t n_pages) const {
    return index_bytes() == 0 ? 0 : (n_pages + kPagesPerIndexBlock - 1) / kPagesPerIndexBlock;
  }
  // In memory, of so many pages and the blocks of their index, which are whole.
  uint64_t bytes(size_t n_pages) const {
    return n_pages * memory_bytes() + index_blocks(n_pages) * index_block_bytes();
  }
};

// Which tokens of a layer stay exact for ever and what becomes of the others.
struct LayerLayout {
  RowLayout open;
  SealedLayout sealed;     // equal sizes mean nothing unless `seals`
  bool seals = false;      // pages older than the tail are coded, or leave for a tier
  size_t seal_pages = 1;   // so many at a time
  size_t sink_tokens = 0;  // of the first page, at most 16: kept exact beside its sealed form
  size_t tail_tokens = 0;  // at least so many of the newest tokens are in open pages
  // No page is sealed before the layer holds so many tokens: statistics of the prompt are made of them.
  size_t first_seal_tokens = 0;
  bool keeps_rows = false;  // when the first pages are sealed, rows of them are kept exact (KeptRows)
  // Where given, it decides what stays exact instead of the tail: rows are sealed in the order in which they
  // leave it, and those that have left wait in open pages until they fill one.
  LogReserve reserve;
  // Of sealed rows, the keys of these stay exact beside the codes: what is reserved when the pages' last
  // token has come.
  LogReserve key_reserve;
  // Rows that stay when a layer had n_rows and a step of n_new tokens ends at n_total of the sequence. Empty:
  // all of them. Where rows leave, the sinks too leave the pages, to be kept beside them.
  std::function<size_t(size_t n_rows, size_t n_new, size_t n_total)> rows_after = {};
  // Above 0: a query at position p sees the rows of p - window_tokens + 1 to p alone, and pages that no query
  // to come sees leave (store/windows.cpp). All rows stay exact then, whatever is said above.
  size_t window_tokens = 0;
  // c: attention takes c * tanh(s / c) for a score s of these rows; 0: the score itself.
  float score_softcap = 0;
  // Makes the digest of an open page of which n_rows rows count what it would be if no others had come. Given
  // where pages have digests.
  std::function<void(size_t n_rows, std::byte* digest)> clear_digest = {};

  bool drops() const { return rows_after != nullptr; }
  // Rows of open pages change places: a step may write to any of these pages.
  bool moves_rows() const { return drops() || reserve.given(); }
  // Coded rows may have copies (CopyTable): so many small pages of so many tokens.
  size_t copy_slots = 0;
  size_t copy_tokens = 0;

  // Bytes of the sinks: per head their keys [sink][head_dim], then values, in the open formats.
  size_t sink_key_bytes() const { return row_bytes(open.key_format, sink_tokens * open.head_dim); }
  size_t sink_value_bytes() const { return row_bytes(open.value_format, sink_tokens * open.head_dim); }
  size_t sink_head_bytes() const { return sink_key_bytes() + sink_value_bytes(); }
  size_t sink_bytes() const { return open.n_kv_heads * sink_head_bytes(); }
  // Of exact rows beside the sealed pages: the sinks, and a page of kept rows.
  size_t beside_bytes() const { return sink_bytes() + (keeps_rows ? open.page_bytes() : 0); }

  // At most, of rows of so many sealed pages.
  uint64_t copy_bytes(size_t n_sealed) const {
    if (copy_slots == 0) return 0;
    const size_t n_slots = std::min(copy_slots, n_sealed * kTokensPerPage / copy_tokens);
    return CopyTable::pages_for(n_slots, copy_tokens) * open.page_bytes();
  }

  // Keys that are exact beside so many sealed pages, of each head.
  size_t n_exact_keys(size_t n_sealed) const {
    if (!key_reserve.given() || n_sealed == 0) return 0;
    return n_sealed * kTokensPerPage - key_reserve.n_settled(n_sealed * kTokensPerPage);
  }
  // Of these, all heads.
  uint64_t exact_key_bytes(size_t n_sealed) const {
    const size_t n_keys = n_exact_keys(n_sealed);
    return open.n_kv_heads * row_bytes(open.key_format, n_keys * open.head_dim);
  }

  // First tokens whose rows have left a layer with a window when it has seen n_tokens: whole pages behind the
  // last window_tokens tokens. A function of the number of tokens alone.
  size_t left_behind(size_t n_tokens) const {
    if (window_tokens == 0 || n_tokens <= window_tokens) return 0;
    return (n_tokens - window_tokens) / kTokensPerPage * kTokensPerPage;
  }
  // The least number of tokens that a layer n_left of whose first tokens have left can be cut to, other than
  // 0: the next query must find its window.
  size_t shortest_cut(size_t n_left) const { return n_left == 0 ? 0 : n_left + window_tokens - 1; }

  // Pages that are sealed when the layer has seen n_tokens: whole ones, older than the tail. A function of
  // the number of tokens alone, so that steps of any size seal the same pages.
  size_t sealed_pages(size_t n_tokens) const {
    if (!seals || n_tokens < first_seal_tokens) return 0;
    if (reserve.given()) return reserve.n_settled(n_tokens) / kTokensPerPage;
    return n_tokens <= tail_tokens ? 0 : (n_tokens - tail_tokens) / kTokensPerPage / seal_pages * seal_pages;
  }
  // Of pages on their way to a tier, so many have their rows in memory once more at a time.
  size_t window_pages() const {
    constexpr size_t kMostBytes = size_t{1} << 20;
    const size_t n_bytes = sealed.pieces().page_bytes();
    return std::max<size_t>(1, n_bytes == 0 ? kMostBytes : kMostBytes / n_bytes);
  }
  // At most, while n_pages are sealed.
  uint64_t window_bytes(size_t n_pages) const {
    if (!sealed.outside) return 0;
    constexpr size_t kPadding = 4096;  // of a page in a slab, at most
    return std::min(n_pages, window_pages()) * (sealed.pieces().page_bytes() + kPadding);
  }
  // Bytes of all pages when n_sealed of those that n_rows take are coded; at most, where rows have copies.
  uint64_t bytes(size_t n_rows, size_t n_sealed) const {
    const size_t n_pages = (n_rows + kTokensPerPage - 1) / kTokensPerPage;
    const uint64_t beside = n_sealed > 0 ? beside_bytes() + copy_bytes(n_sealed) : 0;
    return beside + exact_key_bytes(n_sealed) + sealed.bytes(n_sealed) +
           (n_pages - n_sealed) * open.page_bytes();
  }
};

}  // namespace quire
