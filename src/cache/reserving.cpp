#include "cache/reserving.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/error.h"

namespace quire {

void Reserving::begin_step(size_t n_new, size_t n_pages) {
  next_ = now_;
  for (size_t i = 0; i < n_new; ++i) next_.open.push_back(static_cast<uint32_t>(now_.state.n_tokens() + i));
  next_.state.append(n_new, next_.settled);
  order_.clear();
  if (n_pages == 0) return;
  const auto n_coded = static_cast<ptrdiff_t>(n_pages * kTokensPerPage);
  QUIRE_CHECK(n_pages * kTokensPerPage <= next_.settled.size());
  std::vector<uint32_t> rows(next_.state.n_tokens());  // by position
  for (size_t i = 0; i < next_.open.size(); ++i) rows[next_.open[i]] = static_cast<uint32_t>(i);
  std::vector<uint32_t> arranged = next_.settled;
  arranged.insert(arranged.end(), next_.state.reserved().begin(), next_.state.reserved().end());
  QUIRE_CHECK(arranged.size() == next_.open.size());
  for (const uint32_t position : arranged) order_.push_back(rows[position]);
  next_.settled.erase(next_.settled.begin(), next_.settled.begin() + n_coded);
  next_.open.assign(arranged.begin() + n_coded, arranged.end());
}

// Rows are coded in the order in which they settle.
std::vector<uint32_t> Reserving::positions(size_t n_coded, size_t n_tokens) const {
  std::vector<uint32_t> all;
  LogReserveState(reserve_).append(now_.state.n_tokens(), all);
  QUIRE_CHECK(n_coded <= all.size());
  all.resize(n_coded);
  all.insert(all.end(), now_.open.begin(), now_.open.end());
  while (all.size() < n_tokens) all.push_back(static_cast<uint32_t>(all.size()));
  return all;
}

void Reserving::arrange(Worker& worker, size_t layer, const Store& store) const {
  const size_t n_heads = store.layout(layer).n_kv_heads;
  worker.share(static_cast<int64_t>(n_heads), 1,
               [&](int64_t head, int64_t) { store.reorder_rows(layer, static_cast<size_t>(head), order_); });
}

void KeyReserving::begin_step(size_t n_pages) {
  next_ = now_;
  std::vector<uint32_t> settled;
  next_.append(n_pages * kTokensPerPage - now_.n_tokens(), settled);
}

void KeyReserving::keep(size_t layer, Store& store) const {
  store.keep_exact_keys(layer, {next_.reserved().begin(), next_.reserved().end()},
                        next_.n_tokens() / kTokensPerPage);
}

void Reserving::end_step() { std::swap(now_, next_); }

Reserving::Rows Reserving::rows_after(const LogReserve& reserve, size_t n_tokens, size_t n_pages) {
  Rows rows{LogReserveState(reserve), {}, {}};
  rows.state.append(n_tokens, rows.settled);
  QUIRE_CHECK(n_pages * kTokensPerPage <= rows.settled.size());
  rows.settled.erase(rows.settled.begin(),
                     rows.settled.begin() + static_cast<ptrdiff_t>(n_pages * kTokensPerPage));
  return rows;
}

bool Reserving::can_lie(const LogReserve& reserve, size_t n_tokens, size_t n_pages,
                        std::span<const uint32_t> open) {
  const Rows rows = rows_after(reserve, n_tokens, n_pages);
  std::vector<uint32_t> expected = rows.settled;
  expected.insert(expected.end(), rows.state.reserved().begin(), rows.state.reserved().end());
  std::vector<uint32_t> given(open.begin(), open.end());
  std::ranges::sort(expected);
  std::ranges::sort(given);
  return given == expected;
}

void Reserving::restore(size_t n_tokens, size_t n_pages, std::vector<uint32_t> open) {
  now_ = rows_after(reserve_, n_tokens, n_pages);
  now_.open = std::move(open);
}

void Reserving::crop(size_t n_tokens) {
  now_ = rows_after(reserve_, n_tokens, 0);
  now_.open.resize(n_tokens);
  std::iota(now_.open.begin(), now_.open.end(), 0u);
}

void KeyReserving::restore(size_t n_pages) {
  clear();
  begin_step(n_pages);
  end_step();
}

}  // namespace quire
