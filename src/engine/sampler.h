// Chooses the next token from the logits.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/random.h"

namespace quire {

// How to choose. Names, defaults and order are llama.cpp's: penalty, top-k, top-p, min-p, temperature, draw.
// The probabilities that top-p and min-p look at are those before the temperature.
struct SamplingOptions {
  double temperature = 0.8;  // 0: always the most likely token, the lowest id of equals
  int32_t top_k = 40;        // only the k most likely; 0: no limit
  double top_p = 0.95;       // only the fewest that hold this probability together; 1: no limit
  double min_p = 0.05;       // only those with at least this share of the best one's probability; 0: no limit
  double repeat_penalty = 1.0;  // logits of recent tokens are divided (negative ones multiplied) by it
  int32_t repeat_last_n = 64;   // how many tokens are recent; 0: none, -1: all
  uint64_t seed = 0;
  std::vector<int32_t> banned = {};  // never chosen

  // Throws Error of one sentence for a value out of range.
  void check() const;
};

// The state of choosing for one sequence. The same options, seed, logits and history give the same tokens.
class Sampler {
 public:
  // Throws as SamplingOptions::check().
  explicit Sampler(const SamplingOptions& options);

  const SamplingOptions& options() const { return options_; }

  // The next token, an index into `logits`; `history` is the whole sequence so far, for the penalty. Throws
  // Error when no logit is a finite number, which happens only when the weights are damaged.
  int32_t sample(std::span<const float> logits, std::span<const int32_t> history);

 private:
  struct Candidate {
    float logit;
    int32_t id;
  };

  void penalize(std::span<const int32_t> history);
  int32_t most_likely(std::span<const float> logits) const;
  void collect_candidates(std::span<const float> logits);
  void compute_probabilities(double temperature);
  void keep_top_p();
  void keep_min_p();
  int32_t draw();

  SamplingOptions options_;
  Random random_;
  std::vector<float> adjusted_;        // a copy of the logits, when something has to change in them
  std::vector<Candidate> candidates_;  // most likely first
  std::vector<double> probabilities_;  // of the candidates, not normalised: the first one's is 1
};

}  // namespace quire
