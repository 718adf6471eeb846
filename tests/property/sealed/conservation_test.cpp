// Law 3: every token is attended to exactly once, whether it is a sink, coded or in the tail.
#include <gtest/gtest.h>

#include "property/isa.h"
#include "property/sealed/scene.h"

namespace quire::test {
namespace {

// A zero query weighs all tokens alike: the output is the mean of the values. These are exact (f16),
// integers, and of each token their own, so that a token lost or read twice shows.
TEST(SealedConservation, AZeroQueryGivesTheMeanOfTheValues) {
  size_t n_cases = 0;
  for (const std::string& code : code_names()) {
    for (const char* settings : {"sink=0,tail=0", "sink=4,tail=64", "sink=16,tail=1", "sink=16,tail=100"}) {
      for (const size_t n_tokens : {1, 15, 16, 17, 63, 64, 65, 66, 127, 128, 129, 192, 193, 330}) {
        if (is_forced_plainer() && n_cases++ % 3 != 0) continue;
        Prompt prompt(geometry(6, 64, {2}), n_tokens, n_tokens);
        std::fill(prompt.q[0].begin(), prompt.q[0].end(), 0.0f);
        Random random(n_tokens);
        for (float& v : prompt.v[0]) v = static_cast<float>(random.below(2048));
        const Recipe recipe = Recipe::parse("k=" + code + ",v=f16,frame=rotated," + settings);
        const std::vector<float> out = last_step_output(prompt, recipe, 1);
        for (size_t head = 0; head < 6; ++head) {
          for (size_t d = 0; d < 64; ++d) {
            double mean = 0;
            for (size_t t = 0; t < n_tokens; ++t) mean += prompt.v[0][t * 128 + head / 3 * 64 + d];
            mean /= static_cast<double>(n_tokens);
            ASSERT_NEAR(out[(n_tokens - 1) * 384 + head * 64 + d], mean, 2e-3)
                << recipe.text() << " " << n_tokens;
          }
        }
      }
    }
  }
}

// Values that are all ones, coded and exact, weigh to one under any scores.
TEST(SealedConservation, WeightsSumToOne) {
  for (const char* text :
       {"k=turbo4,v=f16,frame=rotated", "k=turbo2,v=kivi4,frame=plain", "k=q4,v=q8", "kivi2(sink=4)"}) {
    const Recipe recipe = Recipe::parse(text);
    Prompt prompt(geometry(6, 64, {2}), 300, 4);
    std::fill(prompt.v[0].begin(), prompt.v[0].end(), 1.0f);
    for (const size_t n_last : {1, 30}) {
      const std::vector<float> out = last_step_output(prompt, recipe, n_last);
      for (size_t i = (300 - n_last) * 384; i < out.size(); ++i) ASSERT_NEAR(out[i], 1.0f, 1e-3) << text;
    }
  }
}

// U05 over coded pages: values of KV head j are j + 1.
TEST(SealedConservation, EveryQueryHeadReadsItsKvHead) {
  for (const size_t n_kv_heads : {1, 2, 3, 6}) {
    Prompt prompt(geometry(6, 64, {n_kv_heads}), 200, 5);
    for (size_t i = 0; i < prompt.v[0].size(); ++i)
      prompt.v[0][i] = static_cast<float>(i / 64 % n_kv_heads + 1);
    const std::vector<float> out = last_step_output(prompt, Recipe::parse("k=turbo4,v=q8,frame=plain"), 1);
    for (size_t i = 199 * 384; i < out.size(); ++i) {
      const size_t head = i / 64 % 6;
      ASSERT_NEAR(out[i], head / (6 / n_kv_heads) + 1, 0.01) << n_kv_heads << " head " << head;
    }
  }
}

}  // namespace
}  // namespace quire::test
