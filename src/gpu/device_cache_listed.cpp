// Caches of exact rows that are read by bounds of their keys (kernels/cuda/page_bounds.h). Bounds lie behind
// the rows of their page, [layer][kv_head], so that forks and copies of pages have them too.
#include <algorithm>
#include <numeric>
#include <vector>

#include "gpu/device_cache.h"

namespace quire::gpu {

namespace {

size_t size(int64_t n) { return static_cast<size_t>(n); }

// What is taken for a page of the list.
constexpr int kUnitsPerPage = kPageTokens / cuda::kUnitRows;

}  // namespace

// A whole number of units, by which attention finds them.
size_t DeviceCache::exact_page_bytes(const CacheShape& shape, const DeviceRecipe& recipe) {
  const HeadShape& h = shape.heads;
  const int64_t n_heads = int64_t{h.n_kv_heads} * shape.n_layers;
  const int64_t rows =
      static_cast<int64_t>(row_bytes(recipe.format, 2 * size(kPageTokens * h.head_dim))) * n_heads;
  if (!recipe.bounds_pages()) return size(rows);
  const int64_t unit = cuda::unit_bytes(h.head_dim);
  const int64_t bounds = cuda::bounds_bytes(recipe.quest.page_tokens, h.head_dim) * n_heads;
  return size(rows + (bounds + unit - 1) / unit * unit);
}

cuda::ShortPages DeviceCache::short_pages(int layer, const int32_t* exact_tokens) const {
  const HeadShape& h = shape_.heads;
  const int64_t head_bytes = cuda::bounds_bytes(recipe_.quest.page_tokens, h.head_dim);
  const ExactPages exact = exact_pages(layer);
  const uint8_t* bounds = exact_.as<uint8_t>() + exact_rows_bytes() + layer * head_bytes * h.n_kv_heads;
  return {recipe_.format,   shape_.n_sequences,
          h.n_kv_heads,     h.n_heads / h.n_kv_heads,
          h.head_dim,       recipe_.quest.page_tokens,
          exact.keys,       {bounds, static_cast<int64_t>(exact_page_bytes_), head_bytes},
          exact.page_table, exact.page_table_stride,
          exact_tokens};
}

cuda::ListedRows DeviceCache::listed_rows() const {
  const int n_pairs = shape_.n_sequences * shape_.heads.n_kv_heads;
  const auto stride = static_cast<int>(units_.size_bytes() / sizeof(int32_t)) / n_pairs;
  return {units_.as<int32_t>(), stride, unit_counts_.as<int32_t>()};
}

void DeviceCache::reserve_listed() {
  if (!recipe_.bounds_pages()) return;
  const auto n_pairs = size(shape_.n_sequences) * size(shape_.heads.n_kv_heads);
  const QuestChoice& quest = recipe_.quest;
  const int n_units = cuda::listed_units(quest.budget, quest.page_tokens, shape_.most_tokens);
  const size_t n_pages = n_pairs * size((n_units + kUnitsPerPage - 1) / kUnitsPerPage);
  scores_ = cuda::DeviceBuffer(cuda::score_bytes(short_pages(0, nullptr), shape_.most_tokens));
  units_ = cuda::DeviceBuffer(n_pages * kUnitsPerPage * sizeof(int32_t));
  unit_counts_ = cuda::DeviceBuffer(n_pairs * sizeof(int32_t));
  unit_pages_ = cuda::DeviceBuffer(n_pages * sizeof(int32_t));
  std::vector<int32_t> iota(n_pages);
  std::iota(iota.begin(), iota.end(), 0);
  unit_pages_.write(iota.data(), unit_pages_.size_bytes());
}

void DeviceCache::bound_rows(int sequence, int layer, cuda::Stream stream) const {
  if (!recipe_.bounds_pages()) return;
  const int n = pages_.n_tokens(sequence) / recipe_.quest.page_tokens;
  cuda::bound_pages(short_pages(layer, nullptr), exact_table(sequence), n, stream);
}

void DeviceCache::attend_listed(int layer, const float* queries, const int32_t* exact_tokens, float* out,
                                cuda::Stream stream) {
  const cuda::ShortPages pages = short_pages(layer, exact_tokens);
  const cuda::ListedRows listed = listed_rows();
  const QuestChoice& quest = recipe_.quest;
  cuda::bound_last_pages(pages, stream);
  cuda::choose_pages(pages, queries, shape_.scale, quest.budget, shape_.most_tokens, scores_.as<void>(),
                     listed, stream);
  cuda::attend_listed(pages, listed,
                      {queries, shape_.scale, pages.keys.data, exact_pages(layer).values.data,
                       unit_pages_.as<int32_t>(), out, log_sums_.as<float>(), workspace_.as<void>()},
                      stream);
}

}  // namespace quire::gpu
