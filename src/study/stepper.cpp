#include "study/stepper.h"

#include <algorithm>

#include "base/error.h"
#include "study/perplexity.h"
#include "tier/outside_page.h"

namespace quire {
namespace {

double ratio(uint64_t sum, uint64_t n) {
  return n == 0 ? 0 : static_cast<double>(sum) / static_cast<double>(n);
}

// Bytes of the sequence's pages that lie in a tier, shared ones counted in full.
uint64_t outside_bytes(const Cache& cache) {
  uint64_t n_bytes = 0;
  for (size_t layer = 0; layer < cache.store().n_layers(); ++layer) {
    for (const PageRef& page : cache.store().view(layer, cache.n_tokens()).pages) {
      if (page->outside != nullptr) n_bytes += page->outside->layout.page_bytes();
    }
  }
  return n_bytes;
}

}  // namespace

void CacheTally::add_step(const StepStats& stats) {
  ++n_steps_;
  rows_ += stats.rows_read;
  bytes_ += stats.bytes_read;
  predictions_.predictor_calls += stats.predictions.predictor_calls;
  predictions_.neighbour_rows += stats.predictions.neighbour_rows;
  predictions_.weight_bytes += stats.predictions.weight_bytes;
}

void CacheTally::add_size(const Cache& cache) {
  size_bytes_ += cache.size_bytes() + outside_bytes(cache);
  n_values_ += 2 * cache.geometry().rows_of(cache.n_tokens()) * cache.geometry().head_dim;
}

double CacheTally::bits_per_value() const { return 8 * ratio(size_bytes_, n_values_); }
double CacheTally::rows_per_token() const { return ratio(rows_, n_steps_); }
double CacheTally::bytes_per_token() const { return ratio(bytes_, n_steps_); }
double CacheTally::predictor_calls_per_token() const { return ratio(predictions_.predictor_calls, n_steps_); }
double CacheTally::neighbour_rows_per_token() const { return ratio(predictions_.neighbour_rows, n_steps_); }

Stepper::Stepper(Engine& engine) : engine_(engine), logits_(engine.config().vocabulary) {}

void Stepper::prefill(Cache& cache, std::span<const int32_t> tokens) {
  engine_.forward(tokens, cache, workspace_);
}

void Stepper::decode(Cache& cache, std::span<const int32_t> tokens, CacheTally& tally) {
  QUIRE_CHECK(!tokens.empty());
  for (const int32_t& token : tokens) {
    engine_.forward({&token, 1}, cache, workspace_);
    tally.add_step(cache.last_step());
  }
  const size_t row = 0;
  engine_.logits({&row, 1}, workspace_, logits_.data());
}

AnswerScore Stepper::score(Cache& cache, std::span<const int32_t> answer, CacheTally& tally) {
  AnswerScore score{answer.size(), 0, true};
  for (size_t i = 0; i < answer.size(); ++i) {
    score.nll += negative_log_likelihood(logits_, answer[i]);
    score.is_exact &= most_likely(logits_) == static_cast<size_t>(answer[i]);
    if (i + 1 < answer.size()) decode(cache, answer.subspan(i, 1), tally);
  }
  return score;
}

size_t most_likely(std::span<const float> logits) {
  return static_cast<size_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

}  // namespace quire
