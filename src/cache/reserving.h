// What a cache does whose recipe keeps a reserve of exact rows that thins out with distance: rows that have
// left the reserve are brought together, in the order in which they left, to be coded page by page.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/team.h"
#include "store/store.h"

namespace quire {

// Of all layers and heads: which rows are reserved hangs on positions alone. Copied when the cache forks.
class Reserving {
 public:
  explicit Reserving(const LogReserve& reserve) : reserve_(reserve), now_{LogReserveState(reserve), {}, {}} {}

  // n_pages: so many pages more are due when the step is done.
  void begin_step(size_t n_new, size_t n_pages);
  // Brings a layer's rows in order, for the pages that are due to be coded.
  void arrange(Worker& worker, size_t layer, const Store& store) const;
  void end_step();
  // Of a sequence none of whose pages is coded, the first n_tokens stay.
  void crop(size_t n_tokens);

  // Positions of the open rows, as they lie.
  std::span<const uint32_t> open() const { return now_.open; }
  // The same of all rows, n_coded of which are coded, in a step that has brought them to n_tokens.
  std::vector<uint32_t> positions(size_t n_coded, size_t n_tokens) const;
  // Whether the open rows can lie so, when n_pages pages of n_tokens are coded.
  static bool can_lie(const LogReserve& reserve, size_t n_tokens, size_t n_pages,
                      std::span<const uint32_t> open);
  // For a sequence of n_tokens, n_pages of whose pages are coded, and whose open rows lie so.
  void restore(size_t n_tokens, size_t n_pages, std::vector<uint32_t> open);

  uint64_t size_bytes() const {
    return (now_.open.size() + now_.settled.size() + now_.state.reserved().size()) * sizeof(uint32_t);
  }

 private:
  struct Rows {
    LogReserveState state;
    std::vector<uint32_t> settled;  // positions that wait to be coded, in the order in which they settled
    std::vector<uint32_t> open;     // positions of the open rows, as they lie
  };

  // But for where the open rows lie.
  static Rows rows_after(const LogReserve& reserve, size_t n_tokens, size_t n_pages);

  LogReserve reserve_;
  Rows now_;
  Rows next_;                    // after the step
  std::vector<uint32_t> order_;  // of the open rows, where pages are due
};

// The same where keys stay exact beside their codes: rows stay where they are. Copied when the cache forks.
class KeyReserving {
 public:
  explicit KeyReserving(const LogReserve& reserve) : reserve_(reserve), now_(reserve), next_(reserve) {}

  // n_pages: that are coded when the step is done.
  void begin_step(size_t n_pages);
  // By one member, before the layer's pages are coded.
  void keep(size_t layer, Store& store) const;
  void end_step() { now_ = next_; }
  void clear() { now_ = next_ = LogReserveState(reserve_); }
  // For a sequence n_pages of whose pages are coded.
  void restore(size_t n_pages);

 private:
  LogReserve reserve_;
  LogReserveState now_;  // when the last token of the coded pages has come
  LogReserveState next_;
};

}  // namespace quire
