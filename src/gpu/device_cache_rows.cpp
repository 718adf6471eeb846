// Rows that are in the cache already, for a prompt behind them.
#include <algorithm>

#include "gpu/device_cache.h"

namespace quire::gpu {

RowsBefore DeviceCache::rows_before(int sequence) const {
  RowsBefore before;
  before.n_tokens = pages_.n_tokens(sequence);
  if (before.n_tokens == 0) return before;
  before.n_coded_pages = pages_.coded_tokens(sequence) / kPageTokens;
  const int n_exact_rows = pages_.exact_rows(sequence);
  const int n_exact = pages_of(n_exact_rows);
  before.n_rows = before.n_coded_pages * kPageTokens + n_exact_rows;
  const auto coded = pages_.coded_table().begin() + static_cast<ptrdiff_t>(sequence) * pages_.coded_stride();
  const auto exact =
      pages_.exact_table().begin() + static_cast<ptrdiff_t>(sequence) * pages_.shape().exact_pages();
  std::vector<int32_t> numbers(coded, coded + before.n_coded_pages);
  numbers.insert(numbers.end(), exact, exact + n_exact);
  numbers.push_back(pages_.sink_pages()[static_cast<size_t>(sequence)]);
  if (recipe_.window_tokens > 0) {
    // As they stood in the text; if tokens have left, the sinks right before the others.
    const PagesShape& shape = pages_.shape();
    before.n_rows = std::min(before.n_tokens, shape.window_rows() - 1);
    for (int i = 0; i < before.n_rows; ++i) {
      const int position = i < shape.sink_tokens ? i : before.n_tokens - before.n_rows + i;
      numbers.push_back(shape.place_of(position));
    }
  }
  before.tables = cuda::DeviceBuffer(numbers.size() * sizeof(int32_t));
  before.tables.write(numbers.data(), before.tables.size_bytes());
  if (before.n_coded_pages == 0) return before;
  const HeadShape& h = shape_.heads;
  before.framed = cuda::DeviceBuffer(sizeof(float) * kOpenedPages * kPageTokens *
                                     static_cast<size_t>(h.n_kv_heads * h.head_dim));
  return before;
}

void DeviceCache::take_rows(const RowsBefore& before, int layer, const PromptRows& rows,
                            cuda::Stream stream) {
  const HeadShape& h = shape_.heads;
  const bool is_sparse = recipe_.kind == AttentionKind::kSparse;
  const int32_t* coded = before.tables.as<int32_t>();
  const int32_t* exact = coded + before.n_coded_pages;
  const int n_coded = before.n_coded_pages * kPageTokens;
  const int n_exact_rows = before.n_rows - n_coded;
  if (recipe_.window_tokens > 0) {
    const int32_t* places =
        coded + before.tables.size_bytes() / sizeof(int32_t) - static_cast<size_t>(before.n_rows);
    return copy_from_pages(h, exact_pages(layer), exact, n_exact_rows, rows, 0, stream, 0, places);
  }
  const int n_exact_pages = pages_of(n_exact_rows);
  auto* framed = before.framed.as<float>();
  for (int at = 0; at < before.n_coded_pages; at += kOpenedPages) {
    const int n = std::min(kOpenedPages, before.n_coded_pages - at);
    cuda::SparsePages planes = is_sparse ? staged_planes() : coded_planes(layer);
    const int32_t* numbers = is_sparse ? iota_.as<int32_t>() : coded + at;
    if (is_sparse) {
      cuda::SparsePages staged = planes;
      staged.keys.data += index_page_bytes(recipe_.keys, h.head_dim);
      cuda::take_sparse_pages(coded_planes(layer), staged, coded + at, n, h.n_kv_heads, h.head_dim,
                              recipe_.key_bits, recipe_.value_bits, stream, numbers);
    }
    const Frames& frames = frames_[static_cast<size_t>(layer)];
    cuda::open_keys(planes.keys, numbers, n, h.n_kv_heads, h.head_dim, recipe_.keys, framed, stream);
    unframe_rows(h, framed, n, frames.keys, recipe_.format, rows.keys, rows.stride, at * kPageTokens, stream);
    cuda::open_values(planes.values, numbers, n, h.n_kv_heads, h.head_dim, recipe_.values, framed, stream);
    unframe_rows(h, framed, n, frames.values, recipe_.format, rows.values, rows.stride, at * kPageTokens,
                 stream);
  }
  const ExactPages pages = exact_pages(layer);
  if (n_coded > 0) copy_from_pages(h, pages, exact + n_exact_pages, recipe_.sink_tokens, rows, 0, stream);
  copy_from_pages(h, pages, exact, n_exact_rows, rows, n_coded, stream);
}

}  // namespace quire::gpu
