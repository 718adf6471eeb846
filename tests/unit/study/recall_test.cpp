#include "study/recall.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "unit/engine/tiny_model.h"

namespace quire {
namespace {

TEST(RecallScore, IsTheShareOfTheGain) {
  const auto score = [](double nll, double full, double without) {
    return RecallScore{.nll = nll, .nll_full = full, .nll_without = without}.score();
  };
  EXPECT_EQ(score(1, 1, 5), 1);
  EXPECT_EQ(score(5, 1, 5), 0);
  EXPECT_EQ(score(2, 1, 5), 0.75);
  EXPECT_EQ(score(7, 1, 5), -0.5) << "misled";
  EXPECT_TRUE(std::isnan(score(1, 5, 5))) << "the facts are of no use";
  EXPECT_TRUE(std::isnan(score(1, 6, 5)));
}

std::string rainy_prose() {
  std::string text;
  for (int i = 0; i < 60; ++i) text += "It rained on day " + std::to_string(i * i) + ". ";
  return text;
}

RecallOptions small_recall(const char* recipes) {
  RecallOptions options;
  options.recipes = Recipe::parse_list(recipes);
  options.prompt_tokens = {190, 200};
  options.n_facts = 2;
  options.n_seeds = 2;
  return options;
}

TEST(MeasureRecall, RowsInTheOrderAskedFor) {
  test::TinyEngine tiny({.n_threads = 1});
  const char* recipes = "turbo2(frame=rotated,tail=0),full,q8(tail=0),full";
  const std::vector<Recall> rows = measure_recall(tiny.engine, rainy_prose(), small_recall(recipes));
  ASSERT_EQ(rows.size(), 4u);
  for (size_t i = 0; i < rows.size(); ++i) EXPECT_EQ(rows[i].recipe, Recipe::parse_list(recipes)[i]);
  for (const size_t full : {1, 3}) {
    EXPECT_EQ(rows[full].all.nll, rows[full].all.nll_full);
    EXPECT_NE(rows[full].all.nll, rows[full].all.nll_without);
  }
  for (const Recall& row : rows) {
    EXPECT_EQ(row.all.nll_full, rows[1].all.nll);
    EXPECT_EQ(row.all.nll_without, rows[1].all.nll_without);
  }
  const auto change = [&](size_t i) { return std::abs(rows[i].all.nll - rows[i].all.nll_full); };
  EXPECT_GT(change(2), 0) << "the question must read coded rows";
  EXPECT_GT(change(0), change(2));
  EXPECT_LT(rows[0].bytes_read_per_token, rows[2].bytes_read_per_token);
  EXPECT_LT(rows[2].bytes_read_per_token, rows[1].bytes_read_per_token);
  EXPECT_LT(rows[0].bits_per_value, rows[1].bits_per_value);
  EXPECT_EQ(rows[0].rows_read_per_token, rows[1].rows_read_per_token);
}

TEST(MeasureRecall, PartsMakeTheWhole) {
  test::TinyEngine tiny({.n_threads = 1});
  const Recall row = measure_recall(tiny.engine, rainy_prose(), small_recall("q4(tail=0)"))[0];
  EXPECT_EQ(row.all.n_answers, 2u * 2 * 2);
  const auto sum = [](auto begin, auto end, auto of) {
    double total = 0;
    for (; begin != end; ++begin) total += of(*begin);
    return total;
  };
  const auto nll = [](const RecallScore& part) {
    return part.n_answers == 0 ? 0 : part.nll * static_cast<double>(part.n_tokens);
  };
  const auto n = [](const RecallScore& part) { return static_cast<double>(part.n_tokens); };
  EXPECT_EQ(row.by_length.size(), 2u);
  EXPECT_NEAR(sum(row.by_length.begin(), row.by_length.end(), nll), nll(row.all), 1e-9);
  EXPECT_NEAR(sum(row.by_kind.begin(), row.by_kind.end(), nll), nll(row.all), 1e-9);
  EXPECT_EQ(sum(row.by_length.begin(), row.by_length.end(), n), n(row.all));
  EXPECT_EQ(sum(row.by_kind.begin(), row.by_kind.end(), n), n(row.all));
  EXPECT_EQ(row.by_kind[static_cast<size_t>(FactKind::kQuote)].n_answers, 0u)
      << "two facts: a number and words";
  // A number is a blank and five digits, each a token of the tiny model.
  EXPECT_EQ(row.by_kind[static_cast<size_t>(FactKind::kNumber)].n_tokens, 4u * 6);
}

TEST(MeasureRecall, OfASeedOnAnyNumberOfThreads) {
  test::TinyEngine one({.n_threads = 1});
  test::TinyEngine three({.n_threads = 3});
  RecallOptions options = small_recall("q4(tail=0)");
  options.prompt_tokens = {190};
  options.n_facts = 1;
  options.n_seeds = 1;
  const double nll = measure_recall(one.engine, rainy_prose(), options)[0].all.nll;
  EXPECT_EQ(measure_recall(three.engine, rainy_prose(), options)[0].all.nll, nll);
  options.seed = 9;
  EXPECT_NE(measure_recall(one.engine, rainy_prose(), options)[0].all.nll, nll);
}

// Seeds follow one another: two from 0 on are 0 and 1.
TEST(MeasureRecall, SeedsAreMeans) {
  test::TinyEngine tiny({.n_threads = 1});
  RecallOptions options = small_recall("full");
  options.prompt_tokens = {190};
  const auto total = [&](uint64_t seed, size_t n_seeds) {
    options.seed = seed;
    options.n_seeds = n_seeds;
    const RecallScore all = measure_recall(tiny.engine, rainy_prose(), options)[0].all;
    return all.nll * static_cast<double>(all.n_tokens);
  };
  EXPECT_NEAR(total(0, 2), total(0, 1) + total(1, 1), 1e-9);
}

TEST(MeasureRecall, RefusesWhatCannotBeMeasured) {
  test::TinyEngine tiny({.n_threads = 1});
  const auto refuses = [&](const std::string& text, size_t n_prompt, size_t n_facts,
                           const std::string& says) {
    RecallOptions options = small_recall("q8");
    options.prompt_tokens = {n_prompt};
    options.n_facts = n_facts;
    try {
      measure_recall(tiny.engine, text, options);
      ADD_FAILURE() << says;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(says), std::string::npos) << error.what();
    }
  };
  refuses("  ", 190, 2, "empty");
  refuses("Too short.", 190, 2, "too few");
  refuses(rainy_prose(), 250, 2, "context of 256");
  refuses(rainy_prose(), 90, 2, "do not fit");
  refuses(rainy_prose(), 190, 65, "64");
  refuses(rainy_prose(), 190, 0, "a fact");
  RecallOptions none = small_recall("q8");
  none.recipes.clear();
  EXPECT_THROW(measure_recall(tiny.engine, rainy_prose(), none), Error);
}

}  // namespace
}  // namespace quire
