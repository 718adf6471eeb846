// Where the exact rows of a sequence lie when a reserve says which of them leave (store/log_reserve.h), and
// the moves that keep the others together: host logic. It is the order of all layers and heads.
#pragma once

#include <cstdint>
#include <vector>

#include "store/log_reserve.h"

namespace quire::gpu {

// Of one row of the exact pages to the place of another.
struct RowMove {
  int from;
  int to;

  bool operator==(const RowMove&) const = default;
};

// Rows leave in the order in which they leave the reserve, as on the CPU (cache/reserving.h), some at a time:
// how many is up to the caller, and never more than settled().
class RowOrder {
 public:
  explicit RowOrder(const LogReserve& reserve) : reserve_(reserve), state_(reserve) {}

  // Positions of the rows, as they lie.
  const std::vector<uint32_t>& open() const { return open_; }
  int n_open() const { return static_cast<int>(open_.size()); }
  // Rows that have left.
  int n_left() const { return n_left_; }
  // Of the first n_tokens so many have left the reserve, and may have left the rows.
  int settled(int n_tokens) const {
    return static_cast<int>(reserve_.n_settled(static_cast<size_t>(n_tokens)));
  }

  // The row of the next token comes to lie behind the others.
  void append(int position) { open_.push_back(static_cast<uint32_t>(position)); }
  // n rows leave when the sequence has n_tokens: where they lay, in their order. Rows from the end take their
  // places: `moves` are what is to be done then, in any order, as no row is both source and target.
  std::vector<int> leave(int n_tokens, int n, std::vector<RowMove>& moves);
  // Tokens from n_before to n_tokens come at once, behind the others, and n rows leave. Where each row was
  // then: those that leave first, in their order, and behind them the others as they lie from now on.
  std::vector<int> arrange(int n_before, int n_tokens, int n);
  // A sequence of n_tokens cannot be cut to fewer than so many, but for 0: rows have left or moved since.
  int fixed_tokens() const { return n_left_ > 0 ? static_cast<int>(state_.n_tokens()) : 0; }
  // From n_before tokens to n_tokens, which is 0 or at least fixed_tokens().
  void crop(int n_before, int n_tokens);
  // Of a sequence of n_tokens, n_left of whose rows have left: these are the others, as they lie.
  void restore(int n_tokens, int n_left, std::vector<uint32_t> open);

 private:
  void settle(int n_tokens);

  LogReserve reserve_;
  LogReserveState state_;          // when rows left for the last time
  std::vector<uint32_t> settled_;  // positions that have left the reserve then, and not the rows
  std::vector<uint32_t> open_;
  int n_left_ = 0;
};

// Rows that a sequence of up to most_tokens has at most during a step; in_pages: rows leave 64 at a time.
int most_open_rows(const LogReserve& reserve, bool in_pages, int most_tokens);

}  // namespace quire::gpu
