// Attention of query rows to the pages of one KV head.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "attention/partial_state.h"
#include "store/head_frames.h"
#include "store/selection.h"
#include "store/staged_rows.h"
#include "store/store.h"

namespace quire {

// Pages are attended in runs of this many, each run from an empty state, and the runs' states are merged
// from left to right. The split is the same for every query count and thread count, so the output is too.
constexpr size_t kPagesPerRun = 4;

// The parts that a layer's tokens are attended in: the exact sinks, other rows kept exact or copied
// (LayerView::beside), runs of sealed pages, runs of open ones. Of a layer with a window the runs are those
// of the sequence's pages, whichever of them have left. Parts of sealed pages give outputs in the frame of
// the values, if these are framed.
struct Parts {
  enum class Kind : uint8_t { kSinks, kKept, kSealed, kOpen };
  struct Part {
    Kind kind;
    size_t first_page;
    size_t last_page;
  };

  // Of the pages that hold the first n_visible rows, from row first_seen on, which is 0 where pages are
  // sealed.
  Parts(const LayerView& view, size_t n_visible, size_t first_seen = 0);
  size_t size() const { return first_open() + n_open_runs; }
  Part operator[](size_t i) const;
  // Parts first_sealed()..first_open() - 1 are of sealed pages.
  size_t first_sealed() const { return size_t{has_sinks} + n_beside; }
  size_t first_open() const { return first_sealed() + runs(n_sealed); }

  bool has_sinks;
  size_t n_beside;  // pages of kept rows and copies, a part each
  size_t n_sealed;
  size_t n_pages;
  size_t first_open_page;  // that is seen
  size_t left_in_run;      // pages of the first open page's run that have left
  size_t n_open_runs;

 private:
  size_t run_of(size_t page) const { return (page - n_sealed + left_in_run) / kPagesPerRun; }
  static size_t runs(size_t n) { return (n + kPagesPerRun - 1) / kPagesPerRun; }
};

// n_queries tokens with consecutive positions, each with the group's query heads, of one KV head.
// Row r = query * group + head. Queries are already rotated by position and scaled by 1/sqrt(head_dim).
struct QueryRows {
  const float* q;  // [n_queries * group][head_dim]
  size_t n_queries;
  size_t group;                   // query heads per KV head
  size_t first_position;          // query i attends to the tokens 0..first_position + i
  const float* framed = nullptr;  // what frame_queries() makes of them; where pages are sealed
  const float* bias = nullptr;    // [rows] what centring the keys takes off every score of the row
};

// What one thread needs to attend; grown when needed and kept.
struct AttendScratch {
  std::vector<float> scores;      // [rows][64]
  std::vector<float> correction;  // [rows]
  std::vector<uint64_t> masks;    // [rows]
  std::vector<float> keys;        // one page, expanded
  std::vector<float> values;
  std::vector<float> turned;       // [rows][channels] queries of the key bias
  std::vector<float> bias_scores;  // [rows][64]
  StagedRows staged;               // of a run of sealed pages

  // Room for the scores, corrections and masks of so many rows.
  void reserve_rows(size_t n_rows);
};

// Of a page's tokens those in `selected` that each row sees, causally, of n_tokens and in its window (0:
// there is none): masks [rows]; returns their union.
uint64_t row_masks(const QueryRows& queries, uint64_t selected, size_t n_tokens, size_t page, uint64_t* masks,
                   size_t window_tokens = 0);

// scores [n_rows][64] of coded rows get back what centring the keys took off: bias [n_rows].
void add_bias(const float* bias, size_t n_rows, float* scores);

// Floats of a row of the output of sealed parts: values with a sketch leave what S^T is to be applied to
// apart, until unframe_output().
size_t sealed_width(const HeadFrames& frames, size_t n_rows, size_t head_dim);

// Adds a part of a KV head to `state` (rows as in `queries`, of sealed_width() where the part is sealed),
// which is usually an empty one. `frames` may be nullptr where no page is sealed.
void attend_part(const LayerView& view, size_t kv_head, const Parts::Part& part, const QueryRows& queries,
                 const Selection& selection, const HeadFrames* frames, AttendScratch& scratch,
                 PartialState& state);

// Scores of the rows of one page of a part, as attend_part() sees them before any softmax, for queries of one
// token: into scratch.scores [group][64]. Returns which lanes are rows; lane i is token i of the page, or of
// rows kept exact view.kept->positions[kv_head * n + i].
uint64_t score_page(const LayerView& view, size_t kv_head, Parts::Kind kind, size_t page,
                    const QueryRows& queries, const HeadFrames* frames, AttendScratch& scratch);

// Run `run` of the pages of a layer without sealed ones.
inline void attend_run(const LayerView& view, size_t kv_head, size_t run, const QueryRows& queries,
                       const Selection& selection, AttendScratch& scratch, PartialState& state) {
  const size_t last = std::min(view.pages.size(), (run + 1) * kPagesPerRun);
  attend_part(view, kv_head, {Parts::Kind::kOpen, run * kPagesPerRun, last}, queries, selection, nullptr,
              scratch, state);
}

inline size_t runs_for(size_t n_tokens) {
  const size_t run_tokens = kPagesPerRun * kTokensPerPage;
  return (n_tokens + run_tokens - 1) / run_tokens;
}

// The rows' queries as codes of keys want them: `framed` [n_rows][head_dim] in the key frame, and with a
// sketch S behind them S q of each; bias [n_rows].
void frame_queries(const HeadFrames& frames, const float* q, size_t n_rows, size_t head_dim,
                   std::vector<float>& framed, std::vector<float>& bias);
// Takes the output of sealed parts out of the value frame; rows become head_dim floats long.
void unframe_output(const HeadFrames& frames, PartialState& state);

}  // namespace quire
