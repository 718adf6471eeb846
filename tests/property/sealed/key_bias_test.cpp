// Keys with a bias that RoPE turns: attention against double precision, and the same bytes however the tokens
// came in.
#include <gtest/gtest.h>

#include "property/sealed/biased.h"
#include "property/sealed/scene.h"

namespace quire::test {
namespace {

// A bias of ten times the key's norm makes scores of tens, whose rounding shows.
constexpr double kNorm = 80;
constexpr double kBiasedError = 1e-4;

double error_of(const BiasedPrompt& prompt, const Recipe& recipe, size_t n_last) {
  double worst = 0;
  const size_t first = prompt.n_tokens - n_last;
  for (size_t layer = 0; layer < prompt.shape.n_layers; ++layer) {
    const auto wanted = expected_outputs(
        prompt, recipe, layer, first, [](size_t, size_t) { return true; },
        [&](size_t head, size_t token) { return prompt.bias_at(layer, head, token); });
    const auto got = last_step_output(prompt, recipe, n_last, layer, 1, prompt.key_biases);
    worst = std::max(worst, largest_error(prompt, got, wanted, first));
  }
  return worst;
}

double allowed(const Recipe& recipe) { return std::max(allowed_error(recipe), kBiasedError); }

// Few queries, straight from the codes, and many, from opened pages.
TEST(KeyBiasOutput, EveryCodeAndHeadSize) {
  for (const std::string& code : code_names()) {
    for (const size_t head_dim : {40, 64, 100, 128}) {
      const Recipe recipe = coded_recipe(code, "sink=4,tail=10");
      const BiasedPrompt prompt(geometry(6, head_dim, {2}), 280, head_dim, head_dim, kNorm);
      for (const size_t n_last : {1, 20}) {
        ASSERT_LE(error_of(prompt, recipe, n_last), allowed(recipe))
            << recipe.text() << " " << head_dim << " " << n_last << " queries";
      }
    }
  }
}

// Channels that RoPE leaves have a bias too; several layers, heads with and without one.
TEST(KeyBiasOutput, PartialRotationAndManyHeads) {
  for (const char* code : {"turbo4", "kivi4", "q8"}) {
    const Recipe recipe = coded_recipe(code);
    for (const size_t rope_dims : {2, 20, 64}) {
      const BiasedPrompt prompt(geometry(6, 72, {2, 6, 1, 3}), 270, rope_dims, rope_dims, kNorm);
      ASSERT_LE(error_of(prompt, recipe, 1), allowed(recipe)) << code << " " << rope_dims;
      ASSERT_LE(error_of(prompt, recipe, 14), allowed(recipe)) << code << " " << rope_dims;
    }
  }
}

// Keys that are not coded keep their bias.
TEST(KeyBiasOutput, ExactKeysAreLeftAlone) {
  const BiasedPrompt prompt(geometry(6, 64, {2}), 280, 5, 64, kNorm);
  for (const char* text : {"k=f16,v=turbo4,frame=rotated", "k=f32,v=q8", "f32"}) {
    const Recipe recipe = Recipe::parse(text);
    EXPECT_EQ(last_step_output(prompt, recipe, 1, 0, 1, prompt.key_biases),
              last_step_output(prompt, recipe, 1, 0, 1))
        << text;
  }
}

// ---- sequences -------------------------------------------------------------------------------------------

struct FilledBiased {
  FilledBiased(const BiasedPrompt& prompt, const Recipe& recipe, size_t step, int n_threads = 1)
      : cache(recipe, prompt.shape, pool, {.key_biases = prompt.key_biases}),
        team(n_threads),
        out(empty_outputs(prompt)) {
    run_rest(cache, prompt, step, team, out);
  }

  PagePool pool;
  Cache cache;
  Team team;
  Outputs out;
};

// Of the last three tokens, one by one: equal in every bit only where every code is.
Outputs probe(Cache& cache, const BiasedPrompt& prompt, Team& team) {
  cache.crop(prompt.n_tokens - 3);
  Outputs out = empty_outputs(prompt);
  run_rest(cache, prompt, 1, team, out);
  for (size_t layer = 0; layer < out.size(); ++layer)
    out[layer].erase(out[layer].begin(), out[layer].end() - static_cast<ptrdiff_t>(3 * prompt.q_width()));
  return out;
}

TEST(KeyBiasSequence, CodesDoNotDependOnStepsThreadsOrForks) {
  const BiasedPrompt prompt(geometry(6, 40, {2, 6, 1}), 330, 3, 40, kNorm);
  for (const char* text : {"turbo4(frame=rotated)", "turbo2(sink=0,tail=5,frame=rotated)", "kivi2", "q4"}) {
    const Recipe recipe = Recipe::parse(text);
    FilledBiased whole(prompt, recipe, prompt.n_tokens);
    const Outputs wanted = probe(whole.cache, prompt, whole.team);
    EXPECT_EQ(whole.cache.size_bytes(), prompt.shape.cache_bytes(recipe, prompt.n_tokens));
    for (const size_t step : {1, 7, 64, 100}) {
      FilledBiased chunked(prompt, recipe, step, step == 7 ? 3 : 1);
      Cache fork = chunked.cache.fork();
      ASSERT_EQ(probe(fork, prompt, chunked.team), wanted) << text << " fork, steps of " << step;
      ASSERT_EQ(probe(chunked.cache, prompt, chunked.team), wanted) << text << " steps of " << step;
    }
  }
}

}  // namespace
}  // namespace quire::test
