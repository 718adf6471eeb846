// What signvq codes of a sequence want to know of its own first tokens (cache/prompt_statistics.h), on the
// device: means and largest sizes of channels, code words, and which rows stay exact.
//
// Sums are of doubles as on the CPU, in another order; a mean comes out as another float where two floats are
// as near to it as doubles can tell.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "kernels/cuda/signvq_attention.h"

namespace quire::cuda {

// Exact rows of a layer of one sequence, f16 or bf16, [64][head_dim] a page and head. On the device.
struct RowsToMeasure {
  int n_kv_heads;
  int head_dim;
  Format format;
  RowPlane keys;
  const int32_t* pages;  // numbers, in token order
  int n_tokens;          // that are measured
  int n_due;             // of which the first are coded; n_kept of these stay exact
  int n_kept;
  const float*
      last_query;  // [n_kv_heads][head_dim], mean over the group: the rows kept are those it likes best
};

// Of one sequence and layer: parts of SignVqStatistics that may be written.
struct MeasuredSigns {
  float* mean;
  float* balance;
  float* codebook;
  int32_t* kept;
};

size_t measuring_bytes(int n_kv_heads, int head_dim, int most_tokens);

// workspace: measuring_bytes(), of any contents. Throws Error when a launch is refused.
void measure_signs(const RowsToMeasure& rows, const MeasuredSigns& out, void* workspace, Stream stream);

// Means over the group of queries [n_kv_heads * group][head_dim], f16 or bf16.
void mean_queries(const uint16_t* queries, Format format, int n_kv_heads, int group, int head_dim,
                  float* means, Stream stream);

// Rows `kept` of keys and values into `to`, [n_kv_heads][keys, values][64][head_dim].
void gather_kept(const RowsToMeasure& rows, const RowPlane& values, const int32_t* kept, uint8_t* to,
                 Stream stream);

}  // namespace quire::cuda
