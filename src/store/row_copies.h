// Decoded copies of coded rows, attended to instead of the codes. The home of a row stays its code: making
// and forgetting a copy never codes anything again.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace quire {

// A change of which rows have a copy, in all layers, applied by the store after a step.
struct Move {
  enum class Kind : uint8_t { kCopy, kForget };
  Kind kind;
  size_t page;  // a small page: tokens page * page_tokens and on

  bool operator==(const Move&) const = default;
};

// Which rows have a copy, and where: a value, the same for all layers that have copies. Rows are copied in
// small pages of page_tokens tokens, 64 at most. A page of memory has the layout of an open page and takes as
// many small pages as fit, in slots:
//
//   page_tokens 16:  | slot 0 | slot 1 | slot 2 | slot 3 |   | slot 4 | ...
class CopyTable {
 public:
  static constexpr uint32_t kFree = ~uint32_t{0};

  CopyTable() = default;
  // The first sink_tokens tokens are exact anyway and have no copy.
  CopyTable(size_t page_tokens, size_t sink_tokens) : page_tokens_(page_tokens), sink_tokens_(sink_tokens) {}

  static size_t pages_for(size_t n_slots, size_t page_tokens) {
    if (n_slots == 0) return 0;
    const size_t per_page = 64 / page_tokens;
    return (n_slots + per_page - 1) / per_page;
  }

  size_t page_tokens() const { return page_tokens_; }
  size_t slots_per_page() const { return 64 / page_tokens_; }
  // That were ever taken; they are as many as there were small pages at a time.
  size_t n_slots() const { return slots_.size(); }
  // The small page in a slot, or kFree.
  uint32_t page_in(size_t slot) const { return slots_[slot]; }
  // Of a small page, sinks left out.
  size_t rows_of(size_t page) const {
    const size_t first = page * page_tokens_;
    return page_tokens_ - (first < sink_tokens_ ? std::min(page_tokens_, sink_tokens_ - first) : 0);
  }
  // Pages of memory up to the last slot taken.
  size_t n_pages() const { return n_pages_; }
  size_t n_rows() const { return n_rows_; }
  // Of the 64 tokens of a page of the store: those that have a copy.
  uint64_t word(size_t page) const { return page < words_.size() ? words_[page] : 0; }
  // Of the 64 tokens of a page of memory: those that it holds.
  uint64_t lanes(size_t page) const { return lanes_[page]; }

  // Takes the first free slot and returns it.
  size_t put(size_t page);
  void put(size_t page, size_t slot);
  void remove(size_t page);
  void clear();
  // levels [tokens]: 0 where there is a copy.
  void clear_levels(uint8_t* levels) const;

 private:
  void mark(size_t page, size_t slot, bool on);

  size_t page_tokens_ = 0;
  size_t sink_tokens_ = 0;
  std::vector<uint32_t> slots_;
  std::vector<uint64_t> words_;
  std::vector<uint64_t> lanes_;
  size_t n_pages_ = 0;
  size_t n_rows_ = 0;
};

}  // namespace quire
