// Rows worth reading, named by the index of sealed pages without leaving the device: the search of
// attention/sparse_head.h up to its candidates.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "kernels/cuda/attention.h"

namespace quire::cuda {

// Pointers are to device memory. Pages are full: n_tokens counts their rows, 64 a page.
struct IndexSearch {
  int n_sequences;
  int n_kv_heads;
  int group;             // query heads of a KV head, at most kTileHeads
  int head_dim;          // one that has_kernels()
  const float* queries;  // in the frame, [n_sequences][n_kv_heads * group][head_dim]
  float scale;           // of scores, as 1 / sqrt(head_dim)
  RowPlane signs;  // [head_dim / 8][64] bytes a page and head: bit j of byte (g, t) is set where dim 8 g + j
                   // of token t is positive or zero
  RowPlane norms;  // f16 [64]; data nullptr: rows of norm 1
  const int32_t* page_table;  // [n_sequences][page_table_stride]
  int page_table_stride;
  const int32_t* n_tokens;  // [n_sequences]
  int first_token;          // those before are read in any case and never marked
  const int32_t* n_wanted;  // [n_sequences] rows to mark, of every KV head
  uint64_t* words;    // [n_sequences][n_kv_heads][page_table_stride]: bit t of a page's word marks its row t
  int32_t* n_marked;  // [n_sequences][n_kv_heads]
  void* workspace;    // index_workspace_bytes(), of any contents
};

size_t index_workspace_bytes(int n_sequences, int n_kv_heads, int group, int page_table_stride);

// A row counts by its best probability over the group's heads, estimated by signs and norm, in levels an
// eighth of an octave apart from 255 down. Marks the n_wanted highest levels above 0 (fewer where there are
// fewer), of equal ones the newest. Words behind a sequence's pages are left alone. Throws Error when the
// launch is refused or there is no kernel of these sizes.
void search_index(const IndexSearch& search, Stream stream);

}  // namespace quire::cuda
