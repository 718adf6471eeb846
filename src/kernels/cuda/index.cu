#include "kernels/cuda/index.h"

#include "kernels/cuda/device/index_search.cuh"
#include "kernels/cuda/device/launch_attention.cuh"

namespace quire::cuda {

namespace {

// Blocks that share a pair, so that all multiprocessors have some.
constexpr int kBlocksToFill = 1024;
int parts_of(int n_pairs, int page_table_stride) {
  const int most = (page_table_stride + kIndexWarps - 1) / kIndexWarps;
  return std::max(1, std::min(most, kBlocksToFill / n_pairs));
}

size_t aligned(size_t n_bytes) { return (n_bytes + 255) / 256 * 256; }

}  // namespace

size_t index_workspace_bytes(int n_sequences, int n_kv_heads, int group, int page_table_stride) {
  const auto n_pairs = static_cast<size_t>(n_sequences) * static_cast<size_t>(n_kv_heads);
  const size_t n_rows = n_pairs * static_cast<size_t>(page_table_stride) * kPageRowCount;
  const auto n_parts = static_cast<size_t>(parts_of(static_cast<int>(n_pairs), page_table_stride));
  return aligned(n_rows * static_cast<size_t>(group) * sizeof(int16_t)) + aligned(n_rows) +
         aligned(n_pairs * n_parts * kTileHeads * sizeof(float2)) + n_pairs * kLevels * sizeof(int);
}

void search_index(const IndexSearch& search, Stream stream) {
  if (search.group > kTileHeads) {
    throw Error("the index on the CUDA device is searched for up to 8 query heads of a KV head, not " +
                std::to_string(search.group));
  }
  const int n_pairs = search.n_sequences * search.n_kv_heads;
  const size_t n_rows =
      static_cast<size_t>(n_pairs) * static_cast<size_t>(search.page_table_stride) * kPageRowCount;
  const int n_parts = parts_of(n_pairs, search.page_table_stride);
  auto* memory = static_cast<uint8_t*>(search.workspace);
  uint8_t* levels = memory + aligned(n_rows * static_cast<size_t>(search.group) * sizeof(int16_t));
  uint8_t* sums = levels + aligned(n_rows);
  uint8_t* counts = sums + aligned(static_cast<size_t>(n_pairs) * static_cast<size_t>(n_parts) * kTileHeads *
                                   sizeof(float2));
  const IndexParams params = {search,
                              {n_parts, reinterpret_cast<int16_t*>(memory), levels,
                               reinterpret_cast<float2*>(sums), reinterpret_cast<int*>(counts)}};
  const dim3 grid(static_cast<unsigned>(n_parts), static_cast<unsigned>(n_pairs));
  visit_head_dim(search.head_dim, [&](auto head_dim) {
    estimate_rows<head_dim()><<<grid, 32 * kIndexWarps, 0, stream>>>(params);
  });
  check(cudaGetLastError(), "launching the index search");
  level_rows<<<grid, 32 * kIndexWarps, 0, stream>>>(params);
  mark_rows<<<static_cast<unsigned>(n_pairs), kMarkThreads, 0, stream>>>(params);
  check(cudaGetLastError(), "launching the index search");
}

}  // namespace quire::cuda
