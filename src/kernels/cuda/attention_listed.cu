#include <algorithm>

#include "kernels/cuda/device/launch_attention.cuh"
#include "kernels/cuda/device/listed_rows.cuh"
#include "kernels/cuda/page_bounds.h"

namespace quire::cuda {

// Every pair (sequence, KV head) has rows of its own: to the kernel it is a sequence of one KV head.
void attend_listed(const ShortPages& pages, const ListedRows& listed, const ListedAttention& attention,
                   Stream stream) {
  const int n_pairs = pages.n_sequences * pages.n_kv_heads;
  const int64_t pair_values = int64_t{pages.group} * pages.head_dim;
  constexpr int64_t kEntries = 64 / kUnitRows;  // of what is taken for a page
  for (int first = 0; first < n_pairs; first += kMaxSequences) {
    DecodeAttention a{};
    a.n_sequences = std::min(kMaxSequences, n_pairs - first);
    a.n_kv_heads = 1;
    a.group = pages.group;
    a.head_dim = pages.head_dim;
    a.queries = attention.queries + first * pair_values;
    a.scale = attention.scale;
    a.keys = {reinterpret_cast<const uint8_t*>(listed.units),
              kEntries * static_cast<int64_t>(sizeof(int32_t)), 0};
    a.values = a.keys;
    a.page_table = attention.iota + first * (listed.stride / kEntries);
    a.page_table_stride = listed.stride / static_cast<int>(kEntries);
    a.n_tokens = listed.n_rows + first;
    a.out = attention.out + first * pair_values;
    a.log_sums = attention.log_sums + int64_t{first} * pages.group;
    a.workspace = attention.workspace;
    visit_head_dim(pages.head_dim, [&](auto head_dim) {
      if (pages.format == Format::kF16) {
        launch_attention<UnitRows<__half, head_dim()>>(a, {attention.keys, attention.values}, stream);
      } else {
        launch_attention<UnitRows<__nv_bfloat16, head_dim()>>(a, {attention.keys, attention.values}, stream);
      }
    });
  }
}

}  // namespace quire::cuda
