#include "study/perplexity.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "base/error.h"
#include "cache/cache.h"
#include "model/model.h"

namespace quire {
namespace {

// Rows of logits that exist at once: 12.6 MB with a vocabulary of 49,152.
constexpr size_t kBatchRows = 64;

void check(const Engine& engine, std::span<const int32_t> tokens, size_t window_tokens) {
  const ModelConfig& config = engine.config();
  if (window_tokens < 2 || window_tokens > config.context_tokens) {
    throw Error("a window of " + std::to_string(window_tokens) +
                " tokens is not between 2 and the model's context of " +
                std::to_string(config.context_tokens));
  }
  if (tokens.size() < 2) {
    throw Error("perplexity needs at least 2 tokens; the text has " + std::to_string(tokens.size()));
  }
  for (const int32_t id : tokens) {
    if (id >= 0 && static_cast<size_t>(id) < config.vocabulary) continue;
    throw Error("token id " + std::to_string(id) + " is outside the vocabulary of " +
                std::to_string(config.vocabulary) + " tokens");
  }
}

// Scores the windows one after the other with the same buffers.
class WindowScorer {
 public:
  WindowScorer(Engine& engine, const Recipe& recipe)
      : engine_(engine),
        n_vocabulary_(engine.config().vocabulary),
        cache_(engine.make_cache(recipe)),
        logits_(kBatchRows * n_vocabulary_) {}

  void score(std::span<const int32_t> window, PerplexityTally& tally) {
    cache_.crop(0);
    engine_.forward(window, cache_, workspace_);
    for (size_t first = 0; first + 1 < window.size(); first += kBatchRows) {
      const size_t n = std::min(kBatchRows, window.size() - 1 - first);
      score_rows(window, first, n);
      for (size_t i = 0; i < n; ++i) tally.add(nll_[i]);
    }
    ++tally.n_windows;
  }

 private:
  // Row r predicts token r + 1.
  void score_rows(std::span<const int32_t> window, size_t first, size_t n) {
    rows_.resize(n);
    nll_.resize(n);
    for (size_t i = 0; i < n; ++i) rows_[i] = first + i;
    engine_.logits(rows_, workspace_, logits_.data());
    engine_.run([&](Worker& worker) {
      worker.share(static_cast<int64_t>(n), 1, [&](int64_t row, int64_t) {
        const auto i = static_cast<size_t>(row);
        const std::span<const float> logits(logits_.data() + i * n_vocabulary_, n_vocabulary_);
        nll_[i] = negative_log_likelihood(logits, window[first + i + 1]);
      });
    });
  }

  Engine& engine_;
  size_t n_vocabulary_;
  Cache cache_;
  Workspace workspace_;
  std::vector<size_t> rows_;
  std::vector<float> logits_;  // [kBatchRows][vocabulary]
  std::vector<double> nll_;    // of the batch
};

}  // namespace

double negative_log_likelihood(std::span<const float> logits, int32_t target) {
  const double largest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - largest);
  return std::log(sum) + (largest - static_cast<double>(logits[static_cast<size_t>(target)]));
}

void PerplexityTally::add(double nll) {
  ++n_;
  sum_ += nll;
  const double difference = nll - mean_;
  mean_ += difference / static_cast<double>(n_);
  squares_ += difference * (nll - mean_);
}

Perplexity PerplexityTally::result() const {
  if (n_ == 0) throw Error("no token was scored");
  Perplexity result;
  const auto n = static_cast<double>(n_);
  result.n_windows = n_windows;
  result.n_scored = n_;
  result.total_nll = sum_;
  result.mean_nll = sum_ / n;
  result.standard_error = n_ > 1 ? std::sqrt(squares_ / (n - 1) / n) : 0;
  result.perplexity = std::exp(result.mean_nll);
  return result;
}

Perplexity measure_perplexity(Engine& engine, std::span<const int32_t> tokens,
                              const PerplexityOptions& options) {
  check(engine, tokens, options.window_tokens);
  WindowScorer scorer(engine, options.recipe);
  PerplexityTally tally;
  for (size_t first = 0; first < tokens.size(); first += options.window_tokens) {
    const size_t n = std::min(options.window_tokens, tokens.size() - first);
    if (n < 2) break;  // a single token is predicted by nothing
    scorer.score(tokens.subspan(first, n), tally);
    if (options.progress)
      options.progress(static_cast<double>(first + n) / static_cast<double>(tokens.size()));
  }
  return tally.result();
}

}  // namespace quire
