#include "study/perplexity.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "base/error.h"
#include "cache/cache.h"
#include "model/model.h"
#include "model/token_ids.h"

namespace quire {
namespace {

// Rows of logits that exist at once: 12.6 MB with a vocabulary of 49,152.
constexpr size_t kBatchRows = 64;

size_t step_of(const PerplexityOptions& options) {
  if (options.step_tokens > 0) return options.step_tokens;
  return options.recipe.endless() ? kEndlessStepTokens : options.window_tokens;
}

// Most tokens that a step sees.
size_t span_of(const PerplexityOptions& options) {
  if (!options.recipe.endless()) return options.window_tokens;
  return options.recipe.sink_tokens + options.recipe.keep.number("window") + step_of(options);
}

void check(const Engine& engine, std::span<const int32_t> tokens, const PerplexityOptions& options) {
  const ModelConfig& config = engine.config();
  if (options.window_tokens < 2 || span_of(options) > config.context_tokens) {
    throw Error("a window of " + std::to_string(span_of(options)) +
                " tokens is not between 2 and the model's context of " +
                std::to_string(config.context_tokens));
  }
  if (tokens.size() < 2) {
    throw Error("perplexity needs at least 2 tokens; the text has " + std::to_string(tokens.size()));
  }
  check_token_ids(tokens, config.vocabulary);
}

// Scores the windows one after the other with the same buffers.
class WindowScorer {
 public:
  WindowScorer(Engine& engine, const PerplexityOptions& options)
      : engine_(engine),
        step_tokens_(step_of(options)),
        n_vocabulary_(engine.config().vocabulary),
        cache_(engine.make_cache(options.recipe)),
        logits_(kBatchRows * n_vocabulary_) {}

  // `progress` is told of the tokens that are done.
  void score(std::span<const int32_t> window, PerplexityTally& tally,
             const std::function<void(size_t)>& progress) {
    cache_.crop(0);
    for (size_t begin = 0; begin < window.size(); begin += step_tokens_) {
      const size_t end = std::min(window.size(), begin + step_tokens_);
      engine_.forward(window.subspan(begin, end - begin), cache_, workspace_);
      // The last token of the window predicts nothing that could be scored.
      const size_t last = std::min(end, window.size() - 1);
      for (size_t first = begin; first < last; first += kBatchRows) {
        const size_t n = std::min(kBatchRows, last - first);
        score_rows(window, begin, first, n);
        for (size_t i = 0; i < n; ++i) tally.add(nll_[i]);
      }
      progress(end);
    }
    ++tally.n_windows;
  }

 private:
  // Row r of the step that begins at `begin` predicts token begin + r + 1.
  void score_rows(std::span<const int32_t> window, size_t begin, size_t first, size_t n) {
    rows_.resize(n);
    nll_.resize(n);
    for (size_t i = 0; i < n; ++i) rows_[i] = first - begin + i;
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
  size_t step_tokens_;
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
  if (segment_tokens_ > 0) {
    if (n_ % segment_tokens_ == 0) segment_sums_.push_back(0);
    segment_sums_.back() += nll;
  }
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
  for (size_t i = 0; i < segment_sums_.size(); ++i) {
    const size_t n_tokens = std::min(segment_tokens_, n_ - i * segment_tokens_);
    result.segment_perplexity.push_back(std::exp(segment_sums_[i] / static_cast<double>(n_tokens)));
  }
  return result;
}

Perplexity measure_perplexity(Engine& engine, std::span<const int32_t> tokens,
                              const PerplexityOptions& options) {
  check(engine, tokens, options);
  WindowScorer scorer(engine, options);
  PerplexityTally tally(options.segment_tokens);
  std::vector<int32_t> window;
  for (size_t n_done = 0; n_done < tokens.size();) {
    window.clear();
    if (options.begin_token) window.push_back(*options.begin_token);
    const size_t n = std::min(options.window_tokens - window.size(), tokens.size() - n_done);
    const auto first = tokens.begin() + static_cast<std::ptrdiff_t>(n_done);
    window.insert(window.end(), first, first + static_cast<std::ptrdiff_t>(n));
    if (window.size() < 2) break;  // a single token is predicted by nothing
    scorer.score(window, tally, [&](size_t n_scored) {
      if (options.progress)
        options.progress(static_cast<double>(n_done + std::min(n, n_scored)) /
                         static_cast<double>(tokens.size()));
    });
    n_done += n;
  }
  return tally.result();
}

}  // namespace quire
