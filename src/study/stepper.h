// Caches stepped through given tokens, as decoding steps them, and what they predict and read on the way.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "cache/cache.h"
#include "engine/engine.h"
#include "model/model.h"

namespace quire {

// What decoding steps read of caches, and what the caches take, as means.
class CacheTally {
 public:
  void add_step(const StepStats& stats);
  void add_size(const Cache& cache);

  double bits_per_value() const;  // every byte of the caches counted; 0 without a size
  double rows_per_token() const;  // key rows, summed over layers and KV heads; 0 without a step
  double bytes_per_token() const;
  double predictor_calls_per_token() const;
  double neighbour_rows_per_token() const;  // of rows_per_token()

 private:
  uint64_t n_steps_ = 0;
  PredictionCounts predictions_ = {};
  uint64_t rows_ = 0;
  uint64_t bytes_ = 0;
  uint64_t size_bytes_ = 0;
  uint64_t n_values_ = 0;
};

struct AnswerScore {
  size_t n_tokens = 0;
  double nll = 0;         // of all of them, in nats
  bool is_exact = false;  // each was the most likely one, so that greedy decoding says the answer
};

// One workspace for many caches of an engine. Logits are those after the last token decoded.
class Stepper {
 public:
  explicit Stepper(Engine& engine);

  std::span<const float> logits() const { return logits_; }
  // In one step, as a prompt is computed; logits() are not those after it.
  void prefill(Cache& cache, std::span<const int32_t> tokens);
  // One by one, through the stored cache; at least one.
  void decode(Cache& cache, std::span<const int32_t> tokens, CacheTally& tally);
  // The answer that is to follow what was decoded last; its own tokens are decoded too, all but the last, as
  // nothing is asked behind it.
  AnswerScore score(Cache& cache, std::span<const int32_t> answer, CacheTally& tally);

 private:
  Engine& engine_;
  Workspace workspace_;
  std::vector<float> logits_;
};

size_t most_likely(std::span<const float> logits);

}  // namespace quire
