// Sums of exp(score) over coded rows: by what the index estimates, by the candidates' scores, and by all
// codes.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "attention/sparse_head.h"

namespace quire {

namespace {

constexpr double kEstimatesPerNat = kEstimatesPerOctave * 1.4426950408889634;

}  // namespace

int16_t SparseHead::to_estimate(double log_sum) {
  return static_cast<int16_t>(std::clamp(std::round(log_sum * kEstimatesPerNat), -32768.0, 32767.0));
}

// Where scores are capped, what stands for them is: shares of the mass are of capped ones. n: a multiple
// of 64.
void SparseHead::cap_estimates(size_t table, int16_t* estimates, size_t n) const {
  const float cap = view_->score_softcap();
  if (cap == 0) return;
  double bias = 0;
  const size_t first = limits_.mean_query ? 0 : table;
  const size_t last = limits_.mean_query ? queries_.group : table + 1;
  for (size_t row = first; row < last && frames_->key_framed; ++row) {
    bias += static_cast<double>(queries_.bias[row]) / static_cast<double>(last - first);
  }
  float scores[kTokensPerPage];
  for (size_t at = 0; at < n; at += kTokensPerPage) {
    for (size_t t = 0; t < kTokensPerPage; ++t) {
      scores[t] = static_cast<float>(estimates[at + t] / kEstimatesPerNat + bias);
    }
    ops().cap_scores(scores, kPageTokens, cap);
    for (size_t t = 0; t < kTokensPerPage; ++t) estimates[at + t] = to_estimate(scores[t] - bias);
  }
}

// By the estimates. The largest first: one exponential a chunk.
double SparseHead::coded_log_sum(size_t table) const {
  double top = -std::numeric_limits<double>::infinity();
  for (const Chunk& chunk : chunks_) top = std::max(top, chunk.log2_sums[table] / kEstimatesPerNat);
  double sum = 0;
  for (const Chunk& chunk : chunks_) sum += std::exp(chunk.log2_sums[table] / kEstimatesPerNat - top);
  return top + std::log(sum);
}

// Of exact rows and candidates.
double SparseHead::scored_log_sum(size_t row) const {
  double top = exact_log_sums_[row];
  for (const Chunk& chunk : chunks_) top = std::max(top, static_cast<double>(chunk.state.m[row]));
  if (std::isinf(top)) return top;
  double sum = std::exp(exact_log_sums_[row] - top);
  for (const Chunk& chunk : chunks_) {
    const PartialState& state = chunk.state;
    if (state.l[row] > 0.0f) sum += state.l[row] * std::exp(state.m[row] - top);
  }
  return top + std::log(sum);
}

double SparseHead::full_log_sum(size_t row, AttendScratch& scratch) const {
  const size_t dim = view_->layout->head_dim;
  const float* q = coded_queries() + row * dim;
  const double bias = frames_->key_framed ? queries_.bias[row] : 0;
  const auto cap = static_cast<double>(view_->score_softcap());
  scratch.reserve_rows(1);
  // By the kernel that scores candidates: its rounding is the same for both.
  uint16_t rows[kTokensPerPage];
  for (size_t t = 0; t < kTokensPerPage; ++t) rows[t] = static_cast<uint16_t>(t);
  double sum = -std::numeric_limits<double>::infinity();
  for (size_t page = 0; page < keys_.size(); ++page) {
    scratch.staged.load(*view_, kv_head_, page, ~uint64_t{0}, PieceUse::kSwept);
    const KeyPage keys = {index_[page], reinterpret_cast<const uint8_t*>(scratch.staged.keys(page))};
    ops().codes.score_rows[static_cast<size_t>(view_->layer->sealed.keys.code)](
        *frames_->key_book, q, 1, static_cast<int>(dim), {&keys, rows, kTokensPerPage}, scratch.scores.data(),
        {});
    for (uint64_t left = view_->coded_word(kv_head_, page); left != 0; left &= left - 1) {
      const double score = scratch.scores[static_cast<size_t>(std::countr_zero(left))] + bias;
      sum = add_logs(sum, cap > 0 ? cap * std::tanh(score / cap) : score);
    }
  }
  return sum;
}

}  // namespace quire
