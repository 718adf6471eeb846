// Sparse attention (sparse_attention.h) to rows whose codes lie in memory of the host. Index, norms and exact
// rows are on the device; what a step's candidates need comes by gather, but for those that are on the device
// from earlier steps. What comes out is bit by bit what attend_sparse() makes of the same codes on the
// device.
//
// Codes of a row lie together in a record, which is what is fetched at once:
//
//   key as in sparse pages | zeros to 8 bytes | value as in sparse pages | zeros to 16 bytes
//
// Norms of values of four bits, which are not in their rows, stay on the device.
#pragma once

#include "kernels/cuda/resident_set.h"
#include "kernels/cuda/sparse_attention.h"

namespace quire::cuda {

QUIRE_INLINE constexpr int record_value_offset(int key_bits, int head_dim) {
  return (sparse_key_row_bytes(key_bits, head_dim) + 7) / 8 * 8;
}
QUIRE_INLINE constexpr int record_bytes(int key_bits, int head_dim) {
  return (record_value_offset(key_bits, head_dim) + sparse_value_row_bytes(head_dim) + 15) / 16 * 16;
}
// Of a page of one KV head on the device; 0: rows have their norms.
QUIRE_INLINE constexpr int value_norm_bytes(int value_bits) { return value_bits == 4 ? 128 : 0; }

// Of a (sequence, KV head), what a step notes of its candidates' places: [2][most_candidates] words.
QUIRE_INLINE constexpr int64_t record_step_bytes(int most_candidates) {
  return int64_t{2} * 4 * most_candidates;
}

// What became of the records that steps asked for.
struct RecordCounts {
  unsigned long long asked;
  unsigned long long fetched;   // to a place on the device
  unsigned long long in_place;  // read outside, since all places of their set were wanted
};

// Of one layer. On the device but for the records.
struct OffloadedRows {
  RowPlane records;      // [kv_head][page][64][record_bytes], memory of the host that the device can read
  RowPlane value_norms;  // [page][kv_head] f16 [64]
  uint8_t* resident;     // [n_sequences][n_kv_heads][n_sets][kWays][record_bytes]
  uint32_t* words;       // [n_sequences][n_kv_heads][n_sets][kWays], of resident_set.h
  uint32_t n_sets;
  const uint32_t* step;  // number of the step
  uint8_t* step_room;    // behind `resident` in one allocation, of any contents: see record_step_bytes()
  RecordCounts* counts;
};

// Keys of 4 bits, values of 3 or 4, heads of 64 or 128 values.
bool has_offloaded_kernel(int key_bits, int value_bits, int head_dim);
// Of `attention` keys and values are not looked at. Throws Error where there is no kernel or the launch is
// refused.
void attend_offloaded(const SparseAttention& attention, const OffloadedRows& rows, int key_bits,
                      int value_bits, const SparsePlan& plan, Stream stream);

// Sparse pages 0 .. n_pages - 1 of `from` to their places: index to `index`, the rest as `rows` has it, at
// the page numbers pages[n_pages] (on the device).
void lay_records(const SparsePages& from, const RowPlane& index, const OffloadedRows& rows,
                 const int32_t* pages, int n_pages, int n_kv_heads, int head_dim, int key_bits,
                 int value_bits, Stream stream);
// *step += 1.
void count_step(uint32_t* step, Stream stream);

}  // namespace quire::cuda
