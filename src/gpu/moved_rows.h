// Rows that change places, on the device; and queries and keys of sinks that stand closer than in the text.
#pragma once

#include <cstdint>

#include "gpu/row_order.h"
#include "gpu/step_kernels.h"

namespace quire::gpu {

// Rows of keys and values [n_kv_heads][stride][head_dim]: row to.first + i becomes row from.first + order[i],
// n of them.
void arrange_rows(const HeadShape& shape, const PromptRows& from, const int32_t* order, int n,
                  const PromptRows& to, cuda::Stream stream);

// All exact pages, those of all layers: pages of page_bytes, [layer][kv_head][keys, values][64][head_dim].
struct PagePoolRows {
  uint8_t* data;
  int64_t page_bytes;
  int n_layers;
};
// n moves of rows numbered 64 * page + row, on the device. No row is both source and target.
void move_rows(const HeadShape& shape, const PagePoolRows& pages, const RowMove* moves, int n,
               cuda::Stream stream);

// turned [n][n_heads][head_dim]: the queries turned by the angles of their sequence.
void turn_queries(const HeadShape& shape, const float* queries, int n, const Angles& angles, float* turned,
                  cuda::Stream stream);

// The first n_sinks rows of the page table[0], keys turned forward by `shift` positions, to rows to.first ..
void turn_sinks(const HeadShape& shape, const ExactPages& pages, const int32_t* table, int n_sinks, int shift,
                const Angles& angles, const PromptRows& to, cuda::Stream stream);

}  // namespace quire::gpu
