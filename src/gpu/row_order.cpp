#include "gpu/row_order.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/error.h"

namespace quire::gpu {

namespace {

constexpr int kRowsPerPage = 64;

size_t size(int n) { return static_cast<size_t>(n); }

}  // namespace

void RowOrder::settle(int n_tokens) {
  QUIRE_CHECK(size(n_tokens) >= state_.n_tokens());
  state_.append(size(n_tokens) - state_.n_tokens(), settled_);
}

std::vector<int> RowOrder::leave(int n_tokens, int n, std::vector<RowMove>& moves) {
  settle(n_tokens);
  QUIRE_CHECK(n <= static_cast<int>(settled_.size()) && n_tokens == n_left_ + n_open());
  std::vector<int> left;
  std::vector<bool> leaves(open_.size(), false);
  for (int i = 0; i < n; ++i) {
    left.push_back(static_cast<int>(std::ranges::find(open_, settled_[size(i)]) - open_.begin()));
    leaves[size(left.back())] = true;
  }
  settled_.erase(settled_.begin(), settled_.begin() + n);
  n_left_ += n;
  const int n_after = n_open() - n;
  moves.clear();
  for (int to = 0, from = n_after; to < n_after; ++to) {
    if (!leaves[size(to)]) continue;
    while (leaves[size(from)]) ++from;
    moves.push_back({from, to});
    open_[size(to)] = open_[size(from++)];
  }
  open_.resize(size(n_after));
  return left;
}

std::vector<int> RowOrder::arrange(int n_before, int n_tokens, int n) {
  for (int position = n_before; position < n_tokens; ++position) append(position);
  std::vector<int> order(open_.size());
  if (n == 0) {
    std::iota(order.begin(), order.end(), 0);
    return order;
  }
  settle(n_tokens);
  QUIRE_CHECK(n <= static_cast<int>(settled_.size()));
  std::vector<uint32_t> arranged = settled_;
  arranged.insert(arranged.end(), state_.reserved().begin(), state_.reserved().end());
  QUIRE_CHECK(arranged.size() == open_.size());
  std::vector<int> places(size(n_tokens), -1);
  for (int i = 0; i < n_open(); ++i) places[open_[size(i)]] = i;
  for (size_t i = 0; i < arranged.size(); ++i) order[i] = places[arranged[i]];
  open_.assign(arranged.begin() + n, arranged.end());
  settled_.erase(settled_.begin(), settled_.begin() + n);
  n_left_ += n;
  return order;
}

void RowOrder::crop(int n_before, int n_tokens) {
  if (n_tokens == 0) {
    *this = RowOrder(reserve_);
    return;
  }
  QUIRE_CHECK(n_tokens >= fixed_tokens() && n_tokens <= n_before);
  open_.resize(open_.size() - size(n_before - n_tokens));
  if (n_left_ > 0) return;
  state_ = LogReserveState(reserve_);
  settled_.clear();
}

void RowOrder::restore(int n_tokens, int n_left, std::vector<uint32_t> open) {
  *this = RowOrder(reserve_);
  settle(n_tokens);
  QUIRE_CHECK(n_left <= static_cast<int>(settled_.size()));
  QUIRE_CHECK(open.size() == size(n_tokens - n_left));
  settled_.erase(settled_.begin(), settled_.begin() + n_left);
  n_left_ = n_left;
  open_ = std::move(open);
}

int most_open_rows(const LogReserve& reserve, bool in_pages, int most_tokens) {
  size_t most = 0;
  size_t n_left = 0;  // before the step
  for (size_t n = 1; n <= size(most_tokens); ++n) {
    most = std::max(most, n - n_left);
    n_left = reserve.n_settled(n);
    if (in_pages) n_left = n_left / kRowsPerPage * kRowsPerPage;
  }
  return static_cast<int>(most);
}

}  // namespace quire::gpu
