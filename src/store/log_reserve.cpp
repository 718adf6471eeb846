#include "store/log_reserve.h"

#include <algorithm>

namespace quire {

LogReserve::LogReserve(ReserveRule rule, size_t reserve_tokens, size_t sink_tokens)
    : rule_(rule),
      window_(std::max<size_t>(1, reserve_tokens / (rule == ReserveRule::kPublished ? 3 : 4))),
      sink_tokens_(sink_tokens) {}

size_t LogReserve::n_settled(size_t n_tokens) const {
  const size_t n_behind = n_tokens - std::min(n_tokens, sink_tokens_);
  return n_tokens - n_reserved(n_behind);
}

// Of n tokens behind the sinks.
size_t LogReserve::n_reserved(size_t n) const {
  if (rule_ == ReserveRule::kPublished) {
    if (n <= 3 * window_) return n;
    // Rows 3W + 1, 4W + 1, ... halve the older part.
    return 2 * window_ + 1 + (n - 3 * window_ - 1) % window_;
  }
  // Distances 0 .. W - 1 are all reserved, distances W * 2^j .. W * 2^(j+1) - 1 at multiples of 2^(j+1).
  size_t count = std::min(n, window_);
  for (size_t near = window_, stride = 2; near < n; near *= 2, stride *= 2) {
    const size_t last = n - near;                    // positions below it
    const size_t first = n - std::min(n, 2 * near);  // and from here on
    count += (last + stride - 1) / stride - (first + stride - 1) / stride;
  }
  return count;
}

bool LogReserve::strided(size_t p, size_t n) const {
  const size_t distance = n - 1 - p;
  size_t stride = 1;
  for (size_t near = window_; distance >= near; near *= 2) stride *= 2;
  return p % stride == 0;
}

void LogReserveState::append(size_t n, std::vector<uint32_t>& settled) {
  for (size_t i = 0; i < n; ++i) append_one(settled);
}

void LogReserveState::append_one(std::vector<uint32_t>& settled) {
  const auto position = static_cast<uint32_t>(n_tokens_++);
  const size_t n_sinks = reserve_.sink_tokens_;
  if (position < n_sinks) {
    settled.push_back(position);
    return;
  }
  if (reserve_.rule_ == ReserveRule::kPublished) {
    const size_t window = reserve_.window_;
    if (reserved_.size() == 3 * window) {
      size_t n_kept = 0;
      for (size_t i = 0; i < reserved_.size(); ++i) {
        if (i < 2 * window && i % 2 == 1) {
          settled.push_back(reserved_[i]);
        } else {
          reserved_[n_kept++] = reserved_[i];
        }
      }
      reserved_.resize(n_kept);
    }
    reserved_.push_back(position);
    return;
  }
  reserved_.push_back(position);
  const size_t n_behind = n_tokens_ - n_sinks;
  std::erase_if(reserved_, [&](uint32_t p) {
    const bool leaves = !reserve_.strided(p - n_sinks, n_behind);
    if (leaves) settled.push_back(p);
    return leaves;
  });
}

}  // namespace quire
