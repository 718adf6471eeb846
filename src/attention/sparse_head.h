// Attention of one decoded token to some of the coded rows of one KV head, in three steps that read ever
// fewer rows: the index planes of all rows propose candidates, the key codes of the candidates score them,
// the values of the rows kept are summed.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "attention/attend.h"
#include "attention/partial_state.h"
#include "kernels/ops.h"
#include "store/head_frames.h"
#include "store/store.h"

namespace quire {

// How many rows the steps may take.
struct SparseLimits {
  size_t n_candidates;
  size_t n_rows;
  double mass = 0;          // above 0: rows are kept until they hold this share of the mass, whatever n_rows
  bool mean_query = false;  // candidates are those of the group's mean query, not of any head's
};

// The steps of one KV head, to be called in the order below. estimate(), score() and attend() work on a chunk
// of pages each, by any thread; the others on the head as a whole. Nothing depends on who does what.
class SparseHead {
 public:
  static constexpr size_t kPagesPerChunk = 16;
  static size_t chunks_of(size_t n_pages) { return (n_pages + kPagesPerChunk - 1) / kPagesPerChunk; }

  // One query row a head of the group. The view, the frames and the queries outlive the step.
  void begin(const LayerView& view, size_t kv_head, const HeadFrames& frames, const QueryRows& queries,
             const SparseLimits& limits);
  size_t n_chunks() const { return chunks_.size(); }

  // Scores of all rows of a chunk, by the index.
  void estimate(size_t chunk);
  // Candidates are the rows of the highest probability for any head of the group. log_sums [group]: of the
  // exact rows, which take part in the softmax.
  void propose(const double* log_sums);
  // Instead of propose(): no row is a candidate, and the steps that follow have nothing to do.
  void skip();
  // log of the sum of exp(score) over the coded rows that have no exact form, by the estimates, of one query
  // row; log_sum: of the exact rows. After estimate(), before propose() or skip().
  double cold_log_sum(size_t row, double log_sum);
  // For bytes_read(), where the estimates were made and are not asked for.
  void index_was_read() { estimated_ = true; }
  // Scores of the candidates, by their codes.
  void score(size_t chunk, AttendScratch& scratch);
  // The rows that are kept.
  void choose();
  // Attention to the kept rows of a chunk; in the frame of the values.
  void attend(size_t chunk, AttendScratch& scratch);
  const PartialState& state(size_t chunk) const { return chunks_[chunk].state; }
  // Adds to sums [pages of page_tokens] the probability of the kept rows, summed over the group; log_sums
  // [group]: of all that was read.
  void add_probabilities(const double* log_sums, size_t page_tokens, float* sums) const;

  // Appends the tokens of the kept rows; after choose().
  void list_kept(std::vector<uint32_t>& tokens) const;
  // Of a page: its candidates, or the whole page's if it has any. After propose().
  bool has_candidates(size_t page) const { return words_[page] != 0; }
  size_t n_pages() const { return keys_.size(); }
  size_t n_candidates() const { return n_candidates_; }
  size_t n_kept() const { return n_kept_; }
  // Bytes of the page plane if it was read, of the candidates' codes and of the kept rows' values.
  uint64_t bytes_read() const;
  // log of the sum of exp(score) over all coded rows, by their codes, of one query row: what a full read
  // would have seen. Slow; for measurements.
  double full_log_sum(size_t row, AttendScratch& scratch) const;

 private:
  struct Chunk {
    std::vector<float> log2_sums;  // [table] of the estimates, in their units
    std::vector<uint16_t> rows;    // candidates: page of the chunk * 64 + token
    std::vector<float> scores;     // [tile of 64 candidates][group][64]
    std::vector<uint64_t> kept;    // [tile]
    std::vector<float> tops;       // [tile][group] what its scores were taken off before exp(), once attended
    PartialState state{0, 0};      // of the candidates' scores, then of the kept rows

    size_t n_tiles() const { return kept.size(); }
    size_t rows_in(size_t tile) const {
      return std::min(kTokensPerPage, rows.size() - tile * kTokensPerPage);
    }
  };

  struct NextTile {
    RowRefs refs{};
    uint64_t kept = 0;
  };
  NextTile tile_after(size_t chunk, size_t tile) const;
  size_t first_page(size_t chunk) const { return chunk * kPagesPerChunk; }
  size_t pages_of(size_t chunk) const;
  // Where pages lie outside: those of the chunk that have candidates, or with kept_only rows that are kept,
  // come to where keys_ and values_ then say.
  void stage(size_t chunk, bool kept_only, AttendScratch& scratch);
  // Query rows as the codes of the keys want them.
  const float* coded_queries() const { return frames_->key_framed ? queries_.framed : queries_.q; }
  static int16_t to_estimate(double log_sum);
  void make_tables();
  void cap_estimates(size_t table, int16_t* estimates, size_t n) const;
  double coded_log_sum(size_t table) const;
  double scored_log_sum(size_t row) const;
  void list_candidates();
  KeyRowRefs candidates(size_t chunk) const;  // none past the last chunk
  void sum_scores(Chunk& chunk) const;
  void leave_out_exact();
  // Some candidates may be left out, so that their scores have to be compared.
  bool ranks() const { return limits_.mass > 0 || limits_.n_rows < n_candidates_; }
  void keep_all();
  void keep_by_rank();
  void keep_by_mass();
  void keep_head_by_mass(size_t row);
  size_t all_tiles() const;

  const LayerView* view_ = nullptr;
  const HeadFrames* frames_ = nullptr;
  QueryRows queries_{};
  SparseLimits limits_{};
  size_t kv_head_ = 0;
  bool outside_ = false;
  std::vector<const uint8_t*> index_;  // [page]
  std::vector<KeyPage> keys_;
  std::vector<const uint8_t*> values_;
  std::vector<float> mean_query_;
  std::vector<IndexTables> tables_;  // [group], or of the mean query
  std::vector<int16_t> estimates_;   // [table][pages * 64]
  std::vector<int16_t> offsets_;     // [table]
  std::vector<uint8_t> levels_;      // [pages * 64], then of the candidates
  std::vector<uint64_t> words_;      // [page], then [tile]
  std::vector<Chunk> chunks_;
  std::vector<double> exact_log_sums_;  // [group]
  std::vector<float> log_sums_;         // [group] of exact rows and candidates
  size_t n_candidates_ = 0;
  size_t n_kept_ = 0;
  bool estimated_ = false;
};

}  // namespace quire
