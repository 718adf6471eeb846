#include "attention/attend.h"

#include <algorithm>

#include "kernels/ops.h"

namespace quire {

namespace {

// From this many rows on a page is expanded to f32 once instead of by every register tile of rows. The
// arithmetic is the same either way.
constexpr size_t kRowsWorthUnpacking = 12;

// Tokens of a page that lie before `end`.
uint64_t tokens_before(size_t end, size_t page) {
  const size_t start = page * kTokensPerPage;
  if (end <= start) return 0;
  return end - start >= kTokensPerPage ? ~uint64_t{0} : (uint64_t{1} << (end - start)) - 1;
}

void reserve(AttendScratch& scratch, size_t n_rows, size_t page_values, bool unpacking) {
  if (scratch.scores.size() < n_rows * kTokensPerPage) {
    scratch.scores.resize(n_rows * kTokensPerPage);
    scratch.correction.resize(n_rows);
    scratch.masks.resize(n_rows);
  }
  const size_t spare = kSpareBytes / sizeof(float);
  if (unpacking && scratch.keys.size() < page_values + spare) {
    scratch.keys.resize(page_values + spare);
    scratch.values.resize(page_values + spare);
  }
}

// One mask per row; returns their union.
uint64_t row_masks(const QueryRows& queries, uint64_t selected, size_t n_tokens, size_t page, uint64_t* masks) {
  uint64_t any = 0;
  for (size_t i = 0; i < queries.n_queries; ++i) {
    const size_t end = std::min(n_tokens, queries.first_position + i + 1);
    const uint64_t mask = selected & tokens_before(end, page);
    std::fill_n(masks + i * queries.group, queries.group, mask);
    any |= mask;
  }
  return any;
}

}  // namespace

void attend_run(const LayerView& view, size_t kv_head, size_t run, const QueryRows& queries,
                const Selection& selection, AttendScratch& scratch, PartialState& state) {
  const RowLayout& layout = *view.layout;
  const size_t dim = layout.head_dim;
  const size_t n_rows = queries.n_queries * queries.group;
  const size_t page_values = kTokensPerPage * dim;
  const bool unpacking = n_rows >= kRowsWorthUnpacking;
  reserve(scratch, n_rows, page_values, unpacking);
  const auto key_format = static_cast<size_t>(layout.key_format);
  const auto value_format = static_cast<size_t>(layout.value_format);
  const auto f32 = static_cast<size_t>(Format::kF32);
  const int n = static_cast<int>(n_rows);
  const int head_dim = static_cast<int>(dim);
  const Ops& table = ops();

  const size_t last = std::min(view.pages.size(), (run + 1) * kPagesPerRun);
  for (size_t page = run * kPagesPerRun; page < last; ++page) {
    const uint64_t rows =
        row_masks(queries, selection.word(kv_head, page), view.n_tokens, page, scratch.masks.data());
    if (rows == 0) continue;
    const void* keys = view.keys(kv_head, page);
    const void* values = view.values(kv_head, page);
    if (unpacking) {
      table.unpack[key_format](keys, page_values, scratch.keys.data());
      table.unpack[value_format](values, page_values, scratch.values.data());
      keys = scratch.keys.data();
      values = scratch.values.data();
    }
    const void* next_keys = !unpacking && page + 1 < last ? view.keys(kv_head, page + 1) : nullptr;
    table.score[unpacking ? f32 : key_format](queries.q, dim, n, head_dim, keys, scratch.scores.data(),
                                              unpacking ? nullptr : values);
    table.softmax(scratch.scores.data(), scratch.masks.data(), n, state.m.data(), state.l.data(),
                  scratch.correction.data());
    table.accumulate[unpacking ? f32 : value_format](scratch.scores.data(), scratch.correction.data(), rows, n,
                                                     head_dim, values, state.o.data(), dim, next_keys);
  }
}

}  // namespace quire
