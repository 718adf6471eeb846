// A reserve of exact rows that thins out with distance (LogQuant, arXiv 2503.19950, algorithm 1). It hangs on
// positions alone: the same in every layer and head, and the same however the tokens come in steps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace quire {

enum class ReserveRule : uint8_t {
  // Of W rows, W = reserve / 3: when 3W rows are reserved, of the oldest 2W every other one leaves. The
  // reserve swings between 2W and 3W rows, whose distances reach a little beyond 4W.
  kPublished,
  // Over the whole context: at a distance of W * 2^j to W * 2^(j+1), W = reserve / 4, rows at multiples of
  // 2^(j+1) are reserved: W rows, and W / 2 more for every doubling of the context.
  kStrided,
};

// Token i of the sequence is row i. Sinks are no part of it: the first row it knows is the first behind them.
class LogReserve {
 public:
  LogReserve() = default;
  LogReserve(ReserveRule rule, size_t reserve_tokens, size_t sink_tokens);

  bool given() const { return window_ > 0; }
  // Of the first n tokens, so many have left the reserve; sinks count as such. A function of n alone.
  size_t n_settled(size_t n_tokens) const;
  // Of the first n tokens, whether that at this position is in the reserve.
  bool reserves(size_t position, size_t n_tokens) const;

 private:
  friend class LogReserveState;
  // Whether position p is reserved when there are n tokens; kStrided.
  bool strided(size_t p, size_t n) const;
  // The same; kPublished.
  bool published(size_t p, size_t n) const;
  // How often rows have been halved when there are n tokens behind the sinks; kPublished.
  size_t n_halvings(size_t n) const { return n <= 3 * window_ ? 0 : 1 + (n - 3 * window_ - 1) / window_; }
  // Tokens behind the sinks that are reserved.
  size_t n_reserved(size_t n_tokens) const;

  ReserveRule rule_ = ReserveRule::kPublished;
  size_t window_ = 0;  // W
  size_t sink_tokens_ = 0;
};

// The reserve of a sequence, token by token.
class LogReserveState {
 public:
  explicit LogReserveState(const LogReserve& reserve = {}) : reserve_(reserve) {}
  // As it was after n_tokens, of which these are reserved.
  LogReserveState(const LogReserve& reserve, size_t n_tokens, std::vector<uint32_t> reserved)
      : reserve_(reserve), n_tokens_(n_tokens), reserved_(std::move(reserved)) {}

  size_t n_tokens() const { return n_tokens_; }
  // Positions, rising.
  std::span<const uint32_t> reserved() const { return reserved_; }
  // Appends the next tokens. The positions that leave the reserve go to `settled`, in the order in which they
  // leave; the first of all are the sinks.
  void append(size_t n, std::vector<uint32_t>& settled);

 private:
  void append_published(uint32_t position, std::vector<uint32_t>& settled);
  void append_strided(size_t first, std::vector<uint32_t>& settled);

  LogReserve reserve_;
  size_t n_tokens_ = 0;
  std::vector<uint32_t> reserved_;
};

}  // namespace quire
