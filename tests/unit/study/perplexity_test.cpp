#include "study/perplexity.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "unit/engine/tiny_model.h"

namespace quire {
namespace {

TEST(NegativeLogLikelihood, IsMinusLogSoftmax) {
  const std::vector<float> logits = {std::log(1.0f), std::log(2.0f), std::log(5.0f)};
  EXPECT_NEAR(negative_log_likelihood(logits, 0), -std::log(1.0 / 8), 1e-7);
  EXPECT_NEAR(negative_log_likelihood(logits, 2), -std::log(5.0 / 8), 1e-7);
}

TEST(NegativeLogLikelihood, HoldsForLargeLogits) {
  EXPECT_DOUBLE_EQ(negative_log_likelihood(std::vector<float>{1000, 1000}, 0), std::log(2.0));
  EXPECT_DOUBLE_EQ(negative_log_likelihood(std::vector<float>{-1000, 1000}, 0), 2000.0);
}

TEST(PerplexityTally, MeanErrorAndExponent) {
  PerplexityTally tally;
  for (const double nll : {1.0, 2.0, 3.0, 6.0}) tally.add(nll);
  const Perplexity result = tally.result();
  EXPECT_EQ(result.n_scored, 4u);
  EXPECT_DOUBLE_EQ(result.total_nll, 12);
  EXPECT_DOUBLE_EQ(result.mean_nll, 3);
  EXPECT_DOUBLE_EQ(result.perplexity, std::exp(3.0));
  EXPECT_NEAR(result.standard_error, std::sqrt((4 + 1 + 0 + 9) / 3.0 / 4), 1e-12);
  EXPECT_THROW(PerplexityTally().result(), Error);
}

Perplexity measure(Engine& engine, const std::vector<int32_t>& tokens, size_t window) {
  PerplexityOptions options;
  options.window_tokens = window;
  return measure_perplexity(engine, tokens, options);
}

TEST(PerplexityTally, Segments) {
  PerplexityTally tally(2);
  for (const double nll : {1.0, 2.0, 3.0, 6.0, 5.0}) tally.add(nll);
  const std::vector<double> segments = tally.result().segment_perplexity;
  ASSERT_EQ(segments.size(), 3u);
  EXPECT_DOUBLE_EQ(segments[0], std::exp(1.5));
  EXPECT_DOUBLE_EQ(segments[1], std::exp(4.5));
  EXPECT_DOUBLE_EQ(segments[2], std::exp(5.0));
}

// Every token sees all before it, whatever the steps.
TEST(MeasurePerplexity, StepsDoNotMatterWithExactRows) {
  test::TinyEngine tiny;
  const std::vector<int32_t> tokens = test::tiny_text(200);
  const Perplexity whole = measure(tiny.engine, tokens, 90);
  for (const size_t step : {1, 7, 64, 89}) {
    PerplexityOptions options;
    options.window_tokens = 90;
    options.step_tokens = step;
    const Perplexity stepped = measure_perplexity(tiny.engine, tokens, options);
    EXPECT_EQ(stepped.n_scored, whole.n_scored);
    EXPECT_NEAR(stepped.total_nll, whole.total_nll, 1e-9) << step;
  }
}

// A recipe with a window goes beyond the model's context; what it sees at once may not.
TEST(MeasurePerplexity, EndlessRecipesGoBeyondTheContext) {
  test::TinyEngine tiny;
  const size_t context = tiny.engine.config().context_tokens;
  const std::vector<int32_t> tokens = test::tiny_text(3 * context);
  PerplexityOptions options;
  options.window_tokens = tokens.size();
  EXPECT_THROW(measure_perplexity(tiny.engine, tokens, options), Error);
  options.recipe = Recipe::parse("streaming(window=" + std::to_string(context / 2) + ")");
  options.step_tokens = 3;
  const Perplexity endless = measure_perplexity(tiny.engine, tokens, options);
  EXPECT_EQ(endless.n_scored, tokens.size() - 1);
  options.step_tokens = context / 2;
  EXPECT_THROW(measure_perplexity(tiny.engine, tokens, options), Error);
}

TEST(MeasurePerplexity, WindowsAreApart) {
  test::TinyEngine tiny;
  const std::vector<int32_t> tokens = test::tiny_text(200);
  const Perplexity whole = measure(tiny.engine, tokens, 70);
  EXPECT_EQ(whole.n_windows, 3u);
  EXPECT_EQ(whole.n_scored, 69u + 69 + 59);
  double sum = 0;
  for (size_t first = 0; first < 200; first += 70) {
    const auto begin = tokens.begin() + static_cast<ptrdiff_t>(first);
    const std::vector<int32_t> part(begin, begin + static_cast<ptrdiff_t>(std::min<size_t>(70, 200 - first)));
    sum += measure(tiny.engine, part, 70).total_nll;
  }
  EXPECT_NEAR(whole.total_nll, sum, 1e-9);
}

TEST(MeasurePerplexity, EveryWindowHasABeginToken) {
  test::TinyEngine tiny;
  const std::vector<int32_t> tokens = test::tiny_text(150);
  PerplexityOptions options;
  options.window_tokens = 70;
  options.begin_token = 5;
  const Perplexity begun = measure_perplexity(tiny.engine, tokens, options);
  EXPECT_EQ(begun.n_windows, 3u);
  EXPECT_EQ(begun.n_scored, 150u);  // none is the first of its window
  double sum = 0;
  for (size_t first = 0; first < 150; first += 69) {
    std::vector<int32_t> part = {5};
    for (size_t i = first; i < std::min<size_t>(first + 69, 150); ++i) part.push_back(tokens[i]);
    sum += measure(tiny.engine, part, 70).total_nll;
  }
  EXPECT_NEAR(begun.total_nll, sum, 1e-9);
}

TEST(MeasurePerplexity, LastWindowOfOneTokenIsNotScored) {
  test::TinyEngine tiny;
  const Perplexity result = measure(tiny.engine, test::tiny_text(71), 70);
  EXPECT_EQ(result.n_windows, 1u);
  EXPECT_EQ(result.n_scored, 69u);
}

TEST(MeasurePerplexity, ThreadsDoNotMatter) {
  test::TinyEngine one({.n_threads = 1});
  test::TinyEngine three({.n_threads = 3});
  EXPECT_EQ(measure(one.engine, test::tiny_text(150), 100).total_nll,
            measure(three.engine, test::tiny_text(150), 100).total_nll);
}

TEST(MeasurePerplexity, RefusesWhatCannotBeScored) {
  test::TinyEngine tiny;
  EXPECT_THROW(measure(tiny.engine, test::tiny_text(1), 70), Error);
  EXPECT_THROW(measure(tiny.engine, test::tiny_text(100), 1), Error);
  EXPECT_THROW(measure(tiny.engine, test::tiny_text(100), test::kTinyContext + 1), Error);
  EXPECT_THROW(measure(tiny.engine, {1, 2, 259}, 70), Error);
}

}  // namespace
}  // namespace quire
