// Sparse decode attention on the device: one new token of every sequence against the rows of nested codes
// that an index names and against the exact rows, in one launch.
//
// The steps are those of attention/sparse_head.h. Each (sequence, KV head), a pair, belongs to a cluster of
// thread blocks that walk through them together, each block with its part of the pages:
//
//   estimates of all rows by sign plane and norm | levels, candidates | scores of the candidates by their
//   codes | rows kept | attention to their values | merge with the exact rows
//
// Estimates and scores stay in the blocks' shared memory where they fit; nothing waits for the host, and
// what a pair comes to depends on nothing but the pair and the plan.
//
// Estimates: queries in the frame are rounded to 6 bits and sign (the largest is 31); rows count by their
// best probability over the group's heads in levels an eighth of an octave apart, from 255 (probability 1)
// down; level 0 is never read. Of equal levels the newest rows are taken.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "format/row_format.h"
#include "kernels/cuda/attention.h"
#include "kernels/cuda/frame_plane.h"
#include "kernels/cuda/sparse_budget.h"

namespace quire::cuda {

// Query heads that a KV head may have here.
constexpr int kMostSparseHeads = 16;

// Rows read in any case, of pages of exact rows, f16 or bf16, [64 tokens][head_dim]. On the device.
struct ExactRowsOf {
  Format format;
  RowPlane keys;
  RowPlane values;
  const int32_t* page_table;  // [n_sequences][page_table_stride] of the tail
  int page_table_stride;
  const int32_t* n_tokens;    // [n_sequences] of the tail
  const int32_t* sink_pages;  // [n_sequences] or nullptr: pages whose first n_sinks rows are the sinks
};

// Pointers are to device memory.
struct SparseAttention {
  int n_sequences;
  int n_kv_heads;
  int group;             // query heads of a KV head, 1 .. kMostSparseHeads
  int head_dim;          // one that has_kernels()
  const float* queries;  // [n_sequences][n_kv_heads * group][head_dim], as the model has them
  float scale;           // of scores, as 1 / sqrt(head_dim)
  // Sealed pages of nested codes as lay_sparse_pages() leaves them.
  RowPlane index;
  RowPlane keys;
  RowPlane values;
  const int32_t* page_table;  // [n_sequences][page_table_stride]
  int page_table_stride;
  const int32_t* n_tokens;  // [n_sequences] in sealed pages, whole pages
  int n_sinks;              // the first rows of the first sealed page, whose exact form is read; at most 64
  FramePlane key_frame;
  FramePlane value_frame;
  ExactRowsOf exact;
  SparseBudget budget;
  float* out;       // [n_sequences][n_kv_heads * group][head_dim]; zeros where nothing was read
  float* log_sums;  // the same heads: log of the sum of exp(score) of what was read
  int32_t* n_read;  // [n_sequences][n_kv_heads][2]: candidates, coded rows kept
  // nullptr, or [n_sequences][n_kv_heads][page_table_stride]: bit t of a page's word says that its row t was
  // a candidate, or kept.
  uint64_t* candidates;
  uint64_t* kept;
  void* workspace;  // SparsePlan::workspace_bytes, of any contents
};

// What a device can do.
struct SparseDevice {
  int n_multiprocessors;
  int shared_bytes;  // of a block, at most
  // Clusters of so many blocks, one on a multiprocessor, that run at a time; 0: not at all.
  int clusters[17];
};
SparseDevice sparse_device();

// How a launch is cut up: host logic.
struct SparsePlan {
  int cluster_blocks;        // of a pair, 1 to 16
  int n_warps;               // of a block: 8 or 16
  int exact_warps;           // of which so many read exact rows
  int shared_bytes;          // of a block
  int area_bytes;            // of which estimates and scores have so many
  int most_candidates;       // of a pair
  size_t candidates_offset;  // in the workspace, behind estimates that do not fit
  size_t workspace_bytes;
};
// cluster_blocks, n_warps: 0 to choose. Throws Error where sizes have no kernel or the device has too little
// memory.
SparsePlan plan_sparse(const SparseAttention& attention, int key_bits, int value_bits,
                       const SparseDevice& device, int cluster_blocks = 0, int n_warps = 0);

// Bits of keys and values: 4 and 4, 4 and 3, 3 and 3, 2 and 2. Throws Error when the launch is refused.
void attend_sparse(const SparseAttention& attention, int key_bits, int value_bits, const SparsePlan& plan,
                   Stream stream);

// Sealed pages as they lie on the device, each part 16-byte aligned (64 is faster); a key or a value is one
// piece of memory.
// With the planes of format/turbo.h, the sign plane first:
//
//   index    signs [64][head_dim / 8], then f16 norms, that of row t at place 8 (t mod 8) + t / 8
//   keys     [64][words of 32 numbers][planes] words of 4 bytes, signs once more; zeros behind head_dim; of
//            four bits, nibble k of word i of four is the code of number 4 k + i of the 32
//   values   [64][units of 16 numbers] of 8 bytes; then all norms, f16 [64]
//
// A unit is two words and sixteen codes: nibble k of the first word is number k / 2 + 4 (k mod 2), of the
// second 8 more. Of three bits the second word has the norm in its upper half and there is no room for its
// nibbles: their upper bits are those of the first word's nibbles, their lower two lie at bits 4 k of the
// second, from k = 4 on at bits 4 k - 14. Of two bits they are the upper bits of the first word's nibbles.
QUIRE_INLINE constexpr int sparse_index_bytes(int head_dim) { return 64 * (head_dim / 8 + 2); }
QUIRE_INLINE constexpr int sparse_key_row_bytes(int bits, int head_dim) {
  return (head_dim + 31) / 32 * 4 * bits;
}
QUIRE_INLINE constexpr int sparse_key_bytes(int bits, int head_dim) {
  return 64 * sparse_key_row_bytes(bits, head_dim);
}
QUIRE_INLINE constexpr int sparse_value_row_bytes(int head_dim) { return head_dim / 16 * 8; }
QUIRE_INLINE constexpr int sparse_value_bytes(int head_dim) {
  return 64 * sparse_value_row_bytes(head_dim) + 128;
}

// The parts of a pool's pages.
struct SparsePages {
  RowPlane index;
  RowPlane keys;
  RowPlane values;
};
// Pages of the CPU's bytes to pages of another pool, as above; and back. from_pages, to_pages: their numbers
// in the pool of the CPU's bytes; nullptr: the same.
void lay_sparse_pages(const SparsePages& from, const SparsePages& to, const int32_t* pages, int n_pages,
                      int n_kv_heads, int head_dim, int key_bits, int value_bits, Stream stream,
                      const int32_t* from_pages = nullptr);
void take_sparse_pages(const SparsePages& from, const SparsePages& to, const int32_t* pages, int n_pages,
                       int n_kv_heads, int head_dim, int key_bits, int value_bits, Stream stream,
                       const int32_t* to_pages = nullptr);

}  // namespace quire::cuda
