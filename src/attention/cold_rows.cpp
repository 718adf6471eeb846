// What a policy that follows attention wants to know of the coded rows: how much of it they seem to have
// before they are read, and how much each had afterwards.
#include <bit>
#include <cmath>

#include "attention/sparse_head.h"

namespace quire {

// The sum of the probabilities of rows depends on how far their scores spread. Estimates are means, given the
// signs, and spread by sqrt(2 / pi) of the scores only; stretched by the inverse, about kLevelStretch, they
// have as large a sum as scores of normal rows. A single row that points where the query points is then at
// 0.8 of its score, instead of 0.64. (Stretched until it is right, pi / 2, nearly all heads of a real model
// seem to need their cold rows.)

void SparseHead::skip() {
  n_candidates_ = 0;
  for (Chunk& chunk : chunks_) chunk.rows.clear();
  exact_log_sums_.assign(queries_.group, 0.0);
}

double SparseHead::cold_log_sum(size_t row, double log_sum) {
  estimated_ = true;
  const size_t table = limits_.mean_query ? 0 : row;
  const double bias = frames_->key_framed ? queries_.bias[row] : 0;
  // No estimate lies above it.
  const double most = add_logs(coded_log_sum(table) + bias, log_sum);
  const int16_t offset = to_estimate(most - bias);
  const size_t ld = keys_.size() * kTokensPerPage;
  ops().index.levels(estimates_.data() + table * ld, ld, 1, &offset, static_cast<int>(keys_.size()),
                     levels_.data());
  leave_out_exact();
  const auto sum =
      static_cast<double>(ops().index.level_mass(levels_.data(), static_cast<int>(keys_.size())));
  return static_cast<double>(kLevelStretch) * (most - bias) + bias + std::log(sum);
}

void SparseHead::add_probabilities(const double* log_sums, size_t page_tokens, float* sums) const {
  const size_t group = queries_.group;
  std::vector<float> shares(group);
  for (size_t c = 0; c < chunks_.size(); ++c) {
    const Chunk& chunk = chunks_[c];
    for (size_t tile = 0; tile < chunk.n_tiles(); ++tile) {
      if (chunk.kept[tile] == 0) continue;
      for (size_t h = 0; h < group; ++h) {
        shares[h] = static_cast<float>(std::exp(chunk.tops[tile * group + h] - log_sums[h]));
      }
      const float* weights = chunk.scores.data() + tile * group * kTokensPerPage;
      const uint16_t* rows = chunk.rows.data() + tile * kTokensPerPage;
      for (uint64_t left = chunk.kept[tile]; left != 0; left &= left - 1) {
        const auto lane = static_cast<size_t>(std::countr_zero(left));
        float p = 0;
        for (size_t h = 0; h < group; ++h) p += weights[h * kTokensPerPage + lane] * shares[h];
        sums[(first_page(c) * kTokensPerPage + rows[lane]) / page_tokens] += p;
      }
    }
  }
}

}  // namespace quire
