// Attention of query rows to the pages of one KV head.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "attention/partial_state.h"
#include "store/selection.h"
#include "store/store.h"

namespace quire {

// Pages are attended in runs of this many, each run from an empty state, and the runs' states are merged
// from left to right. The split is the same for every query count and thread count, so the output is too.
constexpr size_t kPagesPerRun = 4;

inline size_t runs_for(size_t n_tokens) {
  const size_t run_tokens = kPagesPerRun * kTokensPerPage;
  return (n_tokens + run_tokens - 1) / run_tokens;
}

// n_queries tokens with consecutive positions, each with the group's query heads, of one KV head.
// Row r = query * group + head. Queries are already rotated and scaled by 1/sqrt(head_dim).
struct QueryRows {
  const float* q;         // [n_queries * group][head_dim]
  size_t n_queries;
  size_t group;           // query heads per KV head
  size_t first_position;  // query i attends to the tokens 0..first_position + i
};

// What one thread needs to attend; grown when needed and kept.
struct AttendScratch {
  std::vector<float> scores;      // [rows][64]
  std::vector<float> correction;  // [rows]
  std::vector<uint64_t> masks;    // [rows]
  std::vector<float> keys;        // one page, expanded
  std::vector<float> values;
};

// Adds run `run` of a KV head to `state` (rows as in `queries`), which is usually an empty one.
void attend_run(const LayerView& view, size_t kv_head, size_t run, const QueryRows& queries,
                const Selection& selection, AttendScratch& scratch, PartialState& state);

}  // namespace quire
