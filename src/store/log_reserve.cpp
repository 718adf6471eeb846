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

bool LogReserve::published(size_t p, size_t n) const {
  size_t index = n_reserved(p + 1) - 1;  // among the reserved rows, when it comes
  for (size_t left = n_halvings(n) - n_halvings(p + 1); left > 0 && index > 0; --left) {
    if (index >= 2 * window_) {
      index -= window_;
    } else if (index % 2 == 1) {
      return false;
    } else {
      index /= 2;
    }
  }
  return true;
}

bool LogReserve::reserves(size_t position, size_t n_tokens) const {
  if (position < sink_tokens_ || position >= n_tokens) return false;
  const size_t p = position - sink_tokens_;
  const size_t n = n_tokens - sink_tokens_;
  return rule_ == ReserveRule::kPublished ? published(p, n) : strided(p, n);
}

void LogReserveState::append(size_t n, std::vector<uint32_t>& settled) {
  const size_t last = n_tokens_ + n;
  for (; n_tokens_ < last && n_tokens_ < reserve_.sink_tokens_; ++n_tokens_) {
    settled.push_back(static_cast<uint32_t>(n_tokens_));
  }
  const size_t first = n_tokens_;
  for (; n_tokens_ < last; ++n_tokens_) {
    const auto position = static_cast<uint32_t>(n_tokens_);
    if (reserve_.rule_ == ReserveRule::kPublished) {
      append_published(position, settled);
    } else {
      reserved_.push_back(position);
    }
  }
  if (reserve_.rule_ == ReserveRule::kStrided && first < last) append_strided(first, settled);
}

void LogReserveState::append_published(uint32_t position, std::vector<uint32_t>& settled) {
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
}

// Of the tokens from `first` on, which are among the reserved rows already. A row leaves when its distance
// reaches W * 2^j, where j is how often 2 divides its place behind the sinks: the next stride is not met.
void LogReserveState::append_strided(size_t first, std::vector<uint32_t>& settled) {
  const size_t n_sinks = reserve_.sink_tokens_;
  for (size_t newest = first - n_sinks; newest < n_tokens_ - n_sinks; ++newest) {
    size_t stride = 1;
    while (newest / 2 >= reserve_.window_ * stride) stride *= 2;
    for (; stride > 0; stride /= 2) {  // far rows first, so that positions rise
      const size_t distance = reserve_.window_ * stride;
      if (distance > newest) continue;
      const size_t p = newest - distance;
      if (p % stride == 0 && p % (2 * stride) != 0) settled.push_back(static_cast<uint32_t>(p + n_sinks));
    }
  }
  std::erase_if(reserved_, [&](uint32_t p) { return !reserve_.strided(p - n_sinks, n_tokens_ - n_sinks); });
}

}  // namespace quire
