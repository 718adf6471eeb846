#include "study/stepper.h"

#include <gtest/gtest.h>

#include "engine/session.h"
#include "study/perplexity.h"
#include "unit/engine/tiny_model.h"

namespace quire {
namespace {

// The same as all tokens in one pass, whose rows predict the answer.
TEST(Stepper, ScoresTheAnswerBehindWhatWasDecoded) {
  test::TinyEngine tiny{{.n_threads = 1}};
  const std::vector<int32_t> tokens = test::tiny_text(100);
  const std::span<const int32_t> all(tokens);
  Stepper stepper(tiny.engine);
  Cache cache = tiny.engine.make_cache(Recipe{Format::kF32, Format::kF32});
  CacheTally tally;
  stepper.prefill(cache, all.first(80));
  stepper.decode(cache, all.subspan(80, 10), tally);
  const AnswerScore score = stepper.score(cache, all.subspan(90), tally);

  Cache whole = tiny.engine.make_cache(Recipe{Format::kF32, Format::kF32});
  Workspace workspace;
  tiny.engine.forward(all, whole, workspace);
  double nll = 0;
  for (size_t row = 89; row < 99; ++row) {
    std::vector<float> logits(tiny.engine.config().vocabulary);
    tiny.engine.logits({&row, 1}, workspace, logits.data());
    nll += negative_log_likelihood(logits, tokens[row + 1]);
  }
  EXPECT_EQ(score.n_tokens, 10u);
  EXPECT_NEAR(score.nll, nll, 1e-4);
  EXPECT_EQ(cache.n_tokens(), 99u) << "the last token of the answer is not computed";
  // 19 steps, each of two layers and one KV head, read what is there.
  EXPECT_DOUBLE_EQ(tally.rows_per_token(), 2 * (81 + 99) / 2.0);
}

TEST(Stepper, GreedyTextIsExact) {
  test::TinyEngine tiny{{.n_threads = 1}};
  const std::vector<int32_t> prompt = test::tiny_text(60);
  Session session(tiny.engine, {});
  session.prefill(prompt);
  Sampler sampler({.temperature = 0});
  std::vector<int32_t> answer = session.generate(sampler, {.max_tokens = 5}).tokens;
  ASSERT_EQ(answer.size(), 5u);
  const auto score = [&] {
    Stepper stepper(tiny.engine);
    Cache cache = tiny.engine.make_cache({});
    CacheTally tally;
    stepper.prefill(cache, std::span(prompt).first(59));
    stepper.decode(cache, std::span(prompt).last(1), tally);
    return stepper.score(cache, answer, tally);
  };
  EXPECT_TRUE(score().is_exact);
  answer[3] = (answer[3] + 1) % 256;
  EXPECT_FALSE(score().is_exact);
}

TEST(CacheTally, MeansOverStepsAndCaches) {
  CacheTally tally;
  EXPECT_EQ(tally.rows_per_token(), 0);
  EXPECT_EQ(tally.bits_per_value(), 0);
  tally.add_step({.rows_read = 10, .bytes_read = 100});
  tally.add_step({.rows_read = 30, .bytes_read = 500});
  EXPECT_EQ(tally.rows_per_token(), 20);
  EXPECT_EQ(tally.bytes_per_token(), 300);
}

}  // namespace
}  // namespace quire
