#include "study/ruler.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "study/ruler_score.h"
#include "unit/engine/tiny_model.h"

namespace quire {
namespace {

constexpr size_t kContext = 1024;
constexpr const char* kProse = "The river was low. Nobody came by. The boats lay on the bank for weeks. ";

RulerOptions small_ruler(const char* recipes) {
  RulerOptions options;
  options.recipes = Recipe::parse_list(recipes);
  options.tasks = {&ruler_task("niah_single_2"), &ruler_task("niah_multivalue")};
  options.length_tokens = {700, 900};
  options.n_samples = 2;
  return options;
}

TEST(MeasureRuler, RowsByRecipeLengthAndTask) {
  test::TinyEngine tiny({.n_threads = 1}, kContext);
  const std::vector<RulerRow> rows =
      measure_ruler(tiny.engine, kProse, small_ruler("full,turbo2(frame=rotated)"));
  ASSERT_EQ(rows.size(), 8u);
  for (size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(rows[i].recipe == Recipe{}, i < 4);
    EXPECT_EQ(rows[i].length_tokens, i % 4 < 2 ? 700u : 900u);
    EXPECT_EQ(rows[i].task->name, i % 2 == 0 ? "niah_single_2" : "niah_multivalue");
    ASSERT_EQ(rows[i].answers.size(), 2u);
    double score = 0;
    for (const RulerAnswer& answer : rows[i].answers) {
      EXPECT_EQ(answer.match, match_all(answer.prediction, answer.sample.answers));
      score += 50 * answer.match;
    }
    EXPECT_DOUBLE_EQ(rows[i].score, score);
    EXPECT_GT(rows[i].nll, 0);
  }
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(rows[i].answers[1].sample.answers, rows[i + 4].answers[1].sample.answers) << "the same samples";
    EXPECT_NE(rows[i].nll, rows[i + 4].nll);
    EXPECT_GT(rows[i].bytes_read_per_token, rows[i + 4].bytes_read_per_token);
  }
  EXPECT_NE(rows[0].answers[0].sample.answers, rows[0].answers[1].sample.answers) << "samples differ";
}

TEST(MeasureRuler, TheSameOnAnyNumberOfThreadsAndBesideOthers) {
  test::TinyEngine one({.n_threads = 1}, kContext);
  test::TinyEngine three({.n_threads = 3}, kContext);
  RulerOptions options = small_ruler("q4");
  const std::vector<RulerRow> all = measure_ruler(one.engine, kProse, options);
  options.tasks = {&ruler_task("niah_multivalue")};
  options.length_tokens = {900};
  options.n_samples = 1;
  const std::vector<RulerRow> alone = measure_ruler(three.engine, kProse, options);
  ASSERT_EQ(alone.size(), 1u);
  EXPECT_EQ(all[3].answers[0].nll, alone[0].answers[0].nll);
  EXPECT_EQ(all[3].answers[0].prediction, alone[0].answers[0].prediction);
  options.seed = 1;
  EXPECT_NE(measure_ruler(one.engine, kProse, options)[0].nll, alone[0].nll);
}

TEST(MeasureRuler, RefusesWhatCannotBeMeasured) {
  test::TinyEngine tiny({.n_threads = 1}, kContext);
  const auto refuses = [&](const std::string& prose, const RulerOptions& options, const std::string& says) {
    try {
      measure_ruler(tiny.engine, prose, options);
      ADD_FAILURE() << says;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(says), std::string::npos) << error.what();
    }
  };
  RulerOptions options = small_ruler("q8");
  refuses(" ", options, "empty");
  options.length_tokens = {700, kContext + 1};
  refuses(kProse, options, "context of 1024");
  options.length_tokens = {700, 200};
  refuses(kProse, options, "niah_single_2 needs at least");
  options = small_ruler("q8");
  options.recipes.clear();
  refuses(kProse, options, "recipe");
  options = small_ruler("q8");
  options.tasks.clear();
  refuses(kProse, options, "a task");
}

}  // namespace
}  // namespace quire
