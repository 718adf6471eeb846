#include "study/divergence.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "unit/engine/tiny_model.h"

namespace quire {
namespace {

TEST(KlDivergence, OfKnownDistributions) {
  const std::vector<float> p = {std::log(1.0f), std::log(3.0f)};  // 1/4, 3/4
  const std::vector<float> q = {std::log(2.0f), std::log(2.0f)};  // 1/2, 1/2
  EXPECT_NEAR(kl_divergence(p, q), 0.25 * std::log(0.5) + 0.75 * std::log(1.5), 1e-7);
  EXPECT_EQ(kl_divergence(p, p), 0);
  EXPECT_NEAR(kl_divergence(std::vector<float>{1000, 0}, std::vector<float>{0, 1000}), 1000, 1e-9);
}

TEST(Percentile, BetweenTheNearest) {
  EXPECT_DOUBLE_EQ(percentile({3}, 0.99), 3);
  EXPECT_DOUBLE_EQ(percentile({4, 2}, 0.5), 3);
  EXPECT_DOUBLE_EQ(percentile({0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, 0.99), 9.9);
  EXPECT_DOUBLE_EQ(percentile({2, 1, 3}, 1), 3);
}

std::vector<Divergence> measure(Engine& engine, const char* recipes, size_t n_prompt, size_t n_eval,
                                size_t n_text) {
  DivergenceOptions options;
  options.recipes = Recipe::parse_list(recipes);
  options.prompt_tokens = n_prompt;
  options.eval_tokens = n_eval;
  return measure_divergence(engine, test::tiny_text(n_text), options);
}

TEST(MeasureDivergence, RowsInTheOrderAskedFor) {
  test::TinyEngine tiny;
  const char* recipes = "turbo2(frame=rotated),full,f32,turbo4(frame=rotated),full";
  const std::vector<Divergence> rows = measure(tiny.engine, recipes, 180, 40, 221);
  ASSERT_EQ(rows.size(), 5u);
  for (size_t i = 0; i < rows.size(); ++i) EXPECT_EQ(rows[i].recipe, Recipe::parse_list(recipes)[i]);
  for (const size_t full : {1, 4}) {
    EXPECT_EQ(rows[full].kl_mean, 0);
    EXPECT_EQ(rows[full].same_top1, 1);
    EXPECT_EQ(rows[full].ppl, rows[full].ppl_full);
    EXPECT_EQ(rows[full].ppl_change(), 0);
  }
  EXPECT_GT(rows[2].kl_mean, 0);  // f32 is not f16
  EXPECT_LT(rows[2].kl_mean, rows[3].kl_mean);
  EXPECT_LT(rows[3].kl_mean, rows[0].kl_mean);
  EXPECT_GE(rows[0].kl_p99, rows[0].kl_mean);
  // 220 tokens are four pages of 64, 2 x 1 head of 16 on two layers.
  EXPECT_DOUBLE_EQ(rows[1].bits_per_value, 16.0 * 256 / 220);
  // Token i of the 40 reads 181 + i rows on two layers.
  EXPECT_DOUBLE_EQ(rows[1].rows_read_per_token, 2 * (181 + 39 / 2.0));
  EXPECT_DOUBLE_EQ(rows[1].bytes_read_per_token, rows[1].rows_read_per_token * 64);
  EXPECT_LT(rows[3].bytes_read_per_token, rows[1].bytes_read_per_token);
  EXPECT_LT(rows[3].bits_per_value, rows[1].bits_per_value);
  EXPECT_EQ(rows[3].mass, 1);
}

TEST(MeasureDivergence, TheLastTokenMayHaveNoTarget) {
  test::TinyEngine tiny;
  const std::vector<Divergence> without = measure(tiny.engine, "q4", 150, 20, 170);
  const std::vector<Divergence> with = measure(tiny.engine, "q4", 150, 20, 171);
  EXPECT_EQ(without[0].kl_mean, with[0].kl_mean);
  EXPECT_NE(without[0].ppl, with[0].ppl);
}

TEST(MeasureDivergence, ThreadsDoNotMatter) {
  test::TinyEngine one({.n_threads = 1});
  test::TinyEngine three({.n_threads = 3});
  const std::vector<Divergence> a = measure(one.engine, "kivi4,q4", 150, 20, 170);
  const std::vector<Divergence> b = measure(three.engine, "kivi4,q4", 150, 20, 170);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(a[i].kl_mean, b[i].kl_mean);
    EXPECT_EQ(a[i].ppl, b[i].ppl);
  }
}

TEST(MeasureDivergence, RefusesWhatCannotBeMeasured) {
  test::TinyEngine tiny;
  EXPECT_THROW(measure(tiny.engine, "q4", 150, 20, 169), Error);
  EXPECT_THROW(measure(tiny.engine, "q4", 0, 20, 169), Error);
  EXPECT_THROW(measure(tiny.engine, "q4", 150, 0, 169), Error);
  EXPECT_THROW(measure(tiny.engine, "q4", 100, 1, 101), Error);
  EXPECT_THROW(measure(tiny.engine, "q4", 200, 100, 400), Error) << "more than the context of 256";
}

}  // namespace
}  // namespace quire
