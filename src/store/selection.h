// Which tokens a step reads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace quire {

// A value: one 64-bit word per KV head and page, bit i for token i of the page. Whatever is selected is
// still cut to the tokens that exist and that causality allows.
class Selection {
 public:
  // Everything, without a word of memory.
  static Selection all() { return Selection(); }

  // Nothing yet; words are set by mark().
  Selection(size_t n_kv_heads, size_t n_pages)
      : all_(false), n_pages_(n_pages), words_(n_kv_heads * n_pages, 0) {}

  bool is_all() const { return all_; }
  // Pages that words were asked for; 0 of all().
  size_t n_pages() const { return n_pages_; }
  // Of the words.
  uint64_t size_bytes() const { return words_.capacity() * sizeof(uint64_t); }
  uint64_t word(size_t kv_head, size_t page) const {
    return all_ ? ~uint64_t{0} : words_[kv_head * n_pages_ + page];
  }
  void mark(size_t kv_head, size_t token) {
    words_[kv_head * n_pages_ + token / 64] |= uint64_t{1} << (token % 64);
  }
  // The tokens of a page whose bits are set.
  void mark_word(size_t kv_head, size_t page, uint64_t word) { words_[kv_head * n_pages_ + page] |= word; }
  void mark_range(size_t kv_head, size_t first, size_t last) {
    for (size_t token = first; token < last; ++token) mark(kv_head, token);
  }

 private:
  Selection() = default;

  bool all_ = true;
  size_t n_pages_ = 0;
  std::vector<uint64_t> words_;
};

}  // namespace quire
