#include "study/degeneration.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "base/error.h"
#include "study/long_prompts.h"
#include "study/repetition.h"
#include "unit/engine/tiny_model.h"

namespace quire {
namespace {

constexpr size_t kPairs = test::kTinyLayers * test::kTinyKvHeads;

DegenerationOptions small_degeneration(const std::string& recipes) {
  DegenerationOptions options;
  options.recipes = Recipe::parse_list(recipes);
  options.prompts = {"Tell me of the sea.", "And now of the hills, at length."};
  options.chat = false;
  options.n_new_tokens = 150;
  options.sampling.banned = {test::kTinyEnd, test::kTinyEnd + 1};
  return options;
}

TEST(LongPrompts, AreDifferent) {
  EXPECT_EQ(std::set(long_prompts().begin(), long_prompts().end()).size(), 20u);
}

TEST(MeasureDegeneration, CountsWhatIsRead) {
  test::TinyEngine tiny;
  const auto rows =
      measure_degeneration(tiny.engine, small_degeneration("full,oracle(budget=40),random(budget=100%)"));
  ASSERT_EQ(rows.size(), 3u);
  for (const Degeneration& row : rows) {
    ASSERT_EQ(row.runs.size(), 2u);
    for (const LongRun& run : row.runs) {
      EXPECT_EQ(run.finish, FinishReason::kLength);
      EXPECT_EQ(run.n_tokens, 150u);
      EXPECT_EQ(run.n_steps, 149u);  // the first token's logits are the prompt's
      EXPECT_GT(run.seconds, 0);
    }
  }
  EXPECT_EQ(rows[0].read(), 1);
  EXPECT_EQ(rows[2].read(), 1);
  EXPECT_EQ(rows[2].tokens_as_full(), rows[2].tokens());
  EXPECT_EQ(rows[2].runs[1].text, rows[0].runs[1].text);
  // Of oracle each step reads 40 rows of each pair, or as many as there are.
  uint64_t n_rows = 0;
  const LongRun& run = rows[1].runs[0];
  for (size_t step = 1; step <= run.n_steps; ++step) {
    n_rows += kPairs * std::min<size_t>(40, small_degeneration("full").prompts[0].size() + step);
  }
  EXPECT_EQ(run.rows_read, n_rows);
  EXPECT_LT(rows[1].read(), 0.5);
  EXPECT_LT(rows[1].rows_read_per_token(), rows[0].rows_read_per_token());
}

// Of runs that can say nothing but one token, and of such that end at once.
TEST(MeasureDegeneration, FindsRunsThatRepeatThemselvesAndSuchThatEnd) {
  test::TinyEngine tiny;
  DegenerationOptions options = small_degeneration("full");
  options.sampling.banned.clear();
  for (int32_t id = 0; id <= test::kTinyEnd + 1; ++id) {
    if (id != 'a') options.sampling.banned.push_back(id);
  }
  const Degeneration same = measure_degeneration(tiny.engine, options)[0];
  EXPECT_EQ(same.repeats(), 1);
  EXPECT_EQ(same.ends(), 0);
  EXPECT_EQ(same.tokens(), 150);
  EXPECT_EQ(same.tokens_to_repeat(), kRepeatTokens * kRepeatTimes);
  EXPECT_EQ(same.distinct(), 1.0 / (150 - kDistinctTokens + 1));
  options.n_new_tokens = 49;
  EXPECT_EQ(measure_degeneration(tiny.engine, options)[0].repeats(), 0);
  std::replace(options.sampling.banned.begin(), options.sampling.banned.end(), test::kTinyEnd, int32_t{'a'});
  const Degeneration none = measure_degeneration(tiny.engine, options)[0];
  EXPECT_EQ(none.repeats(), 0);
  EXPECT_TRUE(std::isnan(none.tokens_to_repeat()));
  EXPECT_EQ(none.ends(), 1);
  EXPECT_EQ(none.tokens(), 0);
  EXPECT_EQ(none.read(), 1);
  EXPECT_EQ(none.rows_read_per_token(), 0);
}

TEST(MeasureDegeneration, FullStandsFirstUnlessAskedFor) {
  test::TinyEngine tiny;
  DegenerationOptions options = small_degeneration("q8,q8,random(budget=40)");
  options.n_new_tokens = 4;
  const auto rows = measure_degeneration(tiny.engine, options);
  ASSERT_EQ(rows.size(), 4u);
  EXPECT_EQ(rows[0].recipe.text(), "full");
  EXPECT_EQ(rows[1].recipe.text(), "q8");
  EXPECT_EQ(rows[1].runs[0].text, rows[2].runs[0].text);
  options.recipes = Recipe::parse_list("q8,full");
  const auto asked = measure_degeneration(tiny.engine, options);
  ASSERT_EQ(asked.size(), 2u);
  EXPECT_EQ(asked[1].recipe.text(), "full");
}

TEST(MeasureDegeneration, OfASeedWhateverTheThreads) {
  test::TinyEngine one({.n_threads = 1});
  test::TinyEngine two({.n_threads = 2});
  DegenerationOptions options = small_degeneration("random(budget=40)");
  options.n_new_tokens = 40;
  options.sampling.temperature = 2;
  const LongRun a = measure_degeneration(one.engine, options)[1].runs[1];
  const LongRun b = measure_degeneration(two.engine, options)[1].runs[1];
  options.sampling.seed = 1;
  const LongRun c = measure_degeneration(one.engine, options)[1].runs[1];
  EXPECT_EQ(a.text, b.text);
  EXPECT_EQ(a.rows_read, b.rows_read);
  EXPECT_NE(a.text, c.text);
  // A part of the prompts is drawn for like the whole.
  options.sampling.seed = 0;
  options.prompts.erase(options.prompts.begin());
  options.first_number = 1;
  EXPECT_EQ(measure_degeneration(one.engine, options)[1].runs[0].text, a.text);
}

TEST(MeasureDegeneration, RefusesWhatCannotBe) {
  test::TinyEngine tiny;
  EXPECT_THROW(measure_degeneration(tiny.engine, {}), Error);
  DegenerationOptions options = small_degeneration("full");
  options.n_new_tokens = test::kTinyContext;
  EXPECT_THROW(measure_degeneration(tiny.engine, options), Error);
  options.n_new_tokens = 0;
  EXPECT_THROW(measure_degeneration(tiny.engine, options), Error);
  options = small_degeneration("full");
  options.prompts.clear();
  EXPECT_THROW(measure_degeneration(tiny.engine, options), Error);
}

}  // namespace
}  // namespace quire
