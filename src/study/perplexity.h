// How well a model predicts a text, measured through the cache that a recipe describes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "cache/recipe.h"
#include "engine/engine.h"

namespace quire {

struct PerplexityOptions {
  Recipe recipe = {};
  size_t window_tokens = 2048;
  std::optional<int32_t> begin_token = {};  // the first of every window; none: windows are of the text alone
  // Tokens that go through the cache together; 0: a whole window, or of a recipe whose sequences may exceed
  // the model's context, kEndlessStepTokens. What a recipe drops or leaves out, it does between steps.
  size_t step_tokens = 0;
  size_t segment_tokens = 0;                        // perplexity of every so many tokens apart, too; 0: not
  std::function<void(double share)> progress = {};  // share of the tokens done, after every window
};

constexpr size_t kEndlessStepTokens = 64;

struct Perplexity {
  size_t n_windows = 0;
  size_t n_scored = 0;   // every token but the first of each window
  double total_nll = 0;  // in nats
  double mean_nll = 0;
  double standard_error = 0;                    // of mean_nll, the tokens taken as independent
  double perplexity = 0;                        // exp(mean_nll)
  std::vector<double> segment_perplexity = {};  // in the order of the text, the last one of what is left
};

// -log of the probability that the softmax of the logits gives to `target`, in double precision.
double negative_log_likelihood(std::span<const float> logits, int32_t target);

// Adds up scores, always in the order of the tokens.
class PerplexityTally {
 public:
  // segment_tokens 0: none.
  explicit PerplexityTally(size_t segment_tokens = 0) : segment_tokens_(segment_tokens) {}
  void add(double nll);
  // Throws Error when nothing was scored.
  Perplexity result() const;

  size_t n_windows = 0;

 private:
  size_t n_ = 0;
  double sum_ = 0;
  double mean_ = 0;  // running, with the sum of squared differences from it (Welford 1962)
  double squares_ = 0;
  size_t segment_tokens_;
  std::vector<double> segment_sums_;
};

// The text is cut into windows one after the other, which have window_tokens together with their begin token;
// the last one has less. Each starts with an empty cache, at position 0. Throws Error when the window or, of
// an endless recipe, what it sees at once does not fit the model's context, when a token is not of the
// vocabulary, or when there are fewer than 2 tokens.
Perplexity measure_perplexity(Engine& engine, std::span<const int32_t> tokens,
                              const PerplexityOptions& options);

}  // namespace quire
