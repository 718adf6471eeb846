// Sparse decode attention over signvq codes on the device (Self-Indexing KVCache, arXiv 2603.14224): one new
// token of every sequence against the rows that the sign codes name for the group's mean query, and against
// the exact rows.
//
//   scan     a byte a row: the sum of 16-entry tables over the groups of four dims; a histogram of the bytes
//   attend   threshold of the histogram, rows above it, attention to them and to the exact rows, merge
//
// Two launches, each shared out over all multiprocessors; nothing waits for the host, and what a pair
// (sequence, KV head) comes to depends on nothing but the pair and the plan.
//
// The rule of choice is that of attention/sparse_head.h with queries=mean and candidates=1: tables of bytes
// as index_codebook_tables() makes them (kernels/index.inl), levels an eighth of an octave apart below the
// mass of all coded rows, level 0 never read, of equal levels the newest rows. The mass is summed exactly
// here and by pieces on the CPU, so a level may begin up to 0.09 octaves elsewhere.
//
// Codes become f16 numbers, queries are rounded to f16: scales must stay below 16,376, exact bf16 rows and
// queries in the frame within the range of f16.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "format/row_format.h"
#include "kernels/cuda/attention.h"
#include "kernels/cuda/sparse_budget.h"

namespace quire::cuda {

// Bytes between a layer's first row and its last that a launch can tell apart.
constexpr uint64_t kMostSignVqBytes = uint64_t{32} << 32;
// Rows of a KV head that may stay exact although they are coded.
constexpr int kMostKeptRows = 64;

// Of one layer, on the device. [n_sequences][n_kv_heads] of each.
struct SignVqStatistics {
  const float* mean;      // [head_dim]
  const float* balance;   // [head_dim], keys are divided by it
  const float* codebook;  // [2 ceil(head_dim / 8)][16][4], in the frame
  const int32_t* kept;    // [kMostKeptRows] rows that stay exact, the first n_kept_rows count
};

// Pointers are to device memory.
struct SignVqAttention {
  int n_sequences;
  int n_kv_heads;
  int group;  // query heads of a KV head, any number
  int head_dim;
  const float* queries;  // [n_sequences][n_kv_heads * group][head_dim], as the model has them
  float scale;           // of scores, as 1 / sqrt(head_dim)
  // Sealed pages as lay_signvq_pages() leaves them.
  RowPlane index;
  RowPlane rows;
  const int32_t* page_table;  // [n_sequences][page_table_stride]
  int page_table_stride;
  const int32_t* n_tokens;  // [n_sequences] in sealed pages, whole pages
  SignVqStatistics statistics;
  int n_kept_rows;  // of a KV head that has sealed pages; at most kMostKeptRows
  // Exact rows, f16 or bf16, [64 tokens][head_dim] a page and head.
  Format format;
  RowPlane exact_keys;
  RowPlane exact_values;
  const int32_t* exact_table;  // [n_sequences][exact_table_stride] of the tail
  int exact_table_stride;
  const int32_t* exact_tokens;  // [n_sequences] of the tail
  const int32_t* kept_pages;    // [n_sequences] pages of the kept rows, row i of which is kept[i]
  SparseBudget budget;          // by share or by rows
  float* out;                   // [n_sequences][n_kv_heads * group][head_dim]; zeros where nothing was read
  float* log_sums;              // the same heads: log of the sum of exp(score) of what was read
  int32_t* n_read;              // [n_sequences][n_kv_heads] coded rows read, or nullptr
  uint64_t* marks;  // nullptr, or [n_sequences][n_kv_heads][page_table_stride]: rows read are marked in it
  float*
      mean_queries;  // nullptr, or [n_sequences][n_kv_heads][head_dim]: mean over the group, as the model's
  void* workspace;   // SignVqPlan::workspace_bytes; zeros before the first launch, and left so
};

// How the launches are cut up: host logic.
struct SignVqPlan {
  int scan_blocks;        // of a pair
  int block_parts;        // of a scan block, counted apart: one, or one for each of its warps
  int attend_blocks;      // of a pair and eight query heads
  int most_rows;          // coded ones that a pair reads in a step
  size_t headers_offset;  // in the workspace, behind the counters
  size_t kept_offset;
  size_t counts_offset;
  size_t bytes_offset;
  size_t states_offset;
  size_t workspace_bytes;
};
// Throws Error where there is no kernel of these sizes. n_multiprocessors: block_count() of the device.
SignVqPlan plan_signvq(const SignVqAttention& attention, int n_multiprocessors);

// Throws Error when a launch is refused.
void attend_signvq(const SignVqAttention& attention, const SignVqPlan& plan, Stream stream);

// Sealed pages as they lie on the device, both parts 16-byte aligned (rows of 128 dims want 128). With the
// codes of format/signvq.h, words of 4 bytes:
//
//   index  [head_dim / 16][8 octets of rows][4 groups of four dims] words: nibble i the group's signs in row
//   i rows   [64] of
//            keys    [groups of 32 dims][signs | codes of values 0..15 | codes of 16..31 | scale, zero]
//            values  [units of 16 dims][codes | scale, zero of the unit's group]
//
// Of a key's word the values 2 p stand in the lower half, the values 2 p + 1 in the upper, p rising from bit
// 0 on; of a value's word code i at bit 2 i. Zeros behind head_dim.
QUIRE_INLINE constexpr int signvq_index_bytes(int head_dim) { return 8 * head_dim; }
QUIRE_INLINE constexpr int signvq_key_bytes(int head_dim) { return (head_dim + 31) / 32 * 16; }
QUIRE_INLINE constexpr int signvq_row_bytes(int head_dim) {
  return (signvq_key_bytes(head_dim) + head_dim / 16 * 8 + 31) / 32 * 32;
}

// Rows in memory of the host (offloaded_rows.h), a row's bytes being its record; index and exact rows are on
// the device. A step brings the rows that it reads to where it finds them, those that get no place in the
// resident set into room of its own: [n_sequences * n_kv_heads][most_rows] records. What comes out is bit by
// bit what attend_signvq() makes of the same rows on the device.
struct OffloadedRows;
QUIRE_INLINE constexpr int64_t signvq_step_bytes(int most_rows, int head_dim) {
  return int64_t{most_rows} * signvq_row_bytes(head_dim);
}
// Heads of up to 128 values, up to 8 query heads a KV head.
bool has_offloaded_signvq(int head_dim, int group);
// `rows` of the attention is not looked at. Throws Error where there is no kernel or the launch is refused.
void attend_offloaded_signvq(const SignVqAttention& attention, const OffloadedRows& rows,
                             const SignVqPlan& plan, Stream stream);

// The parts of a pool's pages.
struct SignVqPages {
  RowPlane index;
  RowPlane rows;
};
// The CPU's bytes, keys and values apart, to pages as above: page i from from_pages[i] to to_pages[i].
void lay_signvq_pages(const RowPlane& keys, const RowPlane& values, const SignVqPages& to,
                      const int32_t* from_pages, const int32_t* to_pages, int n_pages, int n_kv_heads,
                      int head_dim, Stream stream);

}  // namespace quire::cuda
