// Quest's selection on the device (policy/select_quest.h): bounds of the keys of short pages, the pages with
// the highest bounds of the scores, and attention to these alone.
//
//   keys -> bounds of a short page, when its last row has come
//   queries, bounds -> scores -> the pages of each KV head, as units of 16 rows -> attention
//
// Everything but the shape lies on the device, and nothing waits for the host: launches may be captured.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "kernels/cuda/attention.h"

namespace quire::cuda {

// Rows that attention reads at a time, and that a short page is made of.
constexpr int kUnitRows = 16;
constexpr int64_t unit_bytes(int head_dim) { return int64_t{2} * kUnitRows * head_dim; }

// Short pages that there are kernels for: whole units, a part of a page.
constexpr bool has_short_pages(int page_tokens) {
  return page_tokens == 16 || page_tokens == 32 || page_tokens == 64;
}
// Of the bounds of a page of 64 tokens of a KV head: for each short page the largest key of each channel and
// then the least, in the rows' format.
constexpr int64_t bounds_bytes(int page_tokens, int head_dim) {
  return int64_t{64} / page_tokens * 2 * head_dim * 2;
}

// Short pages of a layer. Pointers are to device memory.
struct ShortPages {
  Format format;  // f16 or bf16, of keys, values and bounds
  int n_sequences;
  int n_kv_heads;
  int group;  // query heads of a KV head, at most kMostGroup
  int head_dim;
  int page_tokens;
  RowPlane keys;              // pages as attend_exact() reads them; strides whole units
  RowPlane bounds;            // bounds_bytes() a KV head
  const int32_t* page_table;  // [n_sequences][page_table_stride]
  int page_table_stride;
  const int32_t* n_tokens;  // [n_sequences], with the step's own
};
constexpr int kMostGroup = 64;

// Rows that a step reads of n_tokens, as policy/row_budget.h has it.
struct PageBudget {
  double share;  // of all tokens; 0: not by share
  int rows;      // so many; 0: not by number
};

// Of the first n short pages of one sequence, whose page numbers are table[0 ..]; all their rows are there.
void bound_pages(const ShortPages& pages, const int32_t* table, int n, Stream stream);
// Of each sequence, that of the short page whose last row is the step's own.
void bound_last_pages(const ShortPages& pages, Stream stream);

// Of each pair (sequence, KV head): units of the rows to be read, those of the newest tokens at the end, and
// how many rows these are. Unit u begins unit_bytes() * u behind pages.keys.data.
struct ListedRows {
  int32_t* units;   // [n_sequences * n_kv_heads][stride]
  int stride;       // listed_units() of the most tokens that there can be, or more; a multiple of 4
  int32_t* n_rows;  // [n_sequences * n_kv_heads]
};
// Units that a step lists at most of up to most_tokens tokens.
int listed_units(const PageBudget& budget, int page_tokens, int most_tokens);
// Rows that a step of n tokens reads of a KV head.
int listed_rows(const PageBudget& budget, int page_tokens, int n_tokens);

// As the CPU chooses: a page counts by its best share of the softmax over the bounds of any head of the
// group; the page of the newest token is read in any case, and of equals the later. Where the budget is all
// tokens all are listed. scores: score_bytes().
void choose_pages(const ShortPages& pages, const float* queries, float scale, const PageBudget& budget,
                  int most_tokens, void* scores, const ListedRows& listed, Stream stream);
size_t score_bytes(const ShortPages& pages, int most_tokens);

// Attention of queries [n_sequences][n_kv_heads * group][head_dim] to the listed rows; `out` and `log_sums`
// as DecodeAttention has them. workspace: workspace_bytes() of the same shape. `iota`: numbers 0, 1, .. for
// n_sequences * n_kv_heads * stride / 4.
struct ListedAttention {
  const float* queries;
  float scale;
  const uint8_t* keys;
  const uint8_t* values;
  const int32_t* iota;
  float* out;
  float* log_sums;
  void* workspace;
};
void attend_listed(const ShortPages& pages, const ListedRows& listed, const ListedAttention& attention,
                   Stream stream);

}  // namespace quire::cuda
