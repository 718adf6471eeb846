// The cache of a sequence: the same output however the tokens arrive and whoever computes, equal to attention
// in double precision; forks, crops, budgets and the bytes it reports.
#include "cache/cache.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/error.h"
#include "property/cache/prompt.h"

namespace quire::test {
namespace {

// Layers of different head counts; 330 tokens are two runs of pages and a part.
Prompt prompt_of(size_t n_tokens, uint64_t seed = 1) {
  return Prompt(geometry(6, 40, {2, 6, 1}), n_tokens, seed);
}

const char* const kRecipes[] = {"f32",          "full",         "bf16", "k=f32,v=f16",
                                "k=bf16,v=f32", "k=f16,v=bf16", "fp8",  "k=fp8,v=f16"};

// Law 1 through the whole cache, over f32 rows.
TEST(CacheOutput, EqualsDoublePrecision) {
  const Prompt prompt = prompt_of(330);
  const Outputs out = run_prompt(prompt, Recipe::parse("f32"), 330, 2);
  for (size_t layer = 0; layer < prompt.shape.n_layers; ++layer) {
    const size_t dim = prompt.shape.head_dim;
    const size_t kv = prompt.kv_width(layer);
    const size_t group = prompt.shape.n_heads / prompt.shape.n_kv_heads[layer];
    for (size_t token = 0; token < 330; token += 13) {
      for (size_t head = 0; head < prompt.shape.n_heads; ++head) {
        const size_t at = token * prompt.q_width() + head * dim;
        const size_t column = head / group * dim;
        const Attended wanted = attention(
            prompt.q[layer].data() + at, dim, 330, [&](size_t t) { return t <= token; },
            [&](size_t t, size_t d) { return static_cast<double>(prompt.k[layer][t * kv + column + d]); },
            [&](size_t t, size_t d) { return static_cast<double>(prompt.v[layer][t * kv + column + d]); });
        for (size_t d = 0; d < dim; ++d)
          ASSERT_NEAR(out[layer][at + d], wanted.output[d], 1e-5) << layer << "/" << token;
      }
    }
  }
}

TEST(CacheOutput, DoesNotDependOnTheChunks) {
  const Prompt prompt = prompt_of(330);
  for (const char* recipe : kRecipes) {
    const Outputs whole = run_prompt(prompt, Recipe::parse(recipe), 330);
    for (const size_t step : {1, 7, 31, 32, 33, 64, 200}) {
      ASSERT_EQ(run_prompt(prompt, Recipe::parse(recipe), step), whole) << recipe << " in steps of " << step;
    }
  }
}

TEST(CacheOutput, DoesNotDependOnThePiecesOfAStep) {
  const Prompt prompt = prompt_of(330);
  const Outputs whole = run_prompt(prompt, Recipe{}, 330);
  for (const size_t piece : {1, 17, 64, 100, 256}) {
    PagePool pool;
    Cache cache(Recipe{}, prompt.shape, pool);
    Team team(1);
    Outputs out = empty_outputs(prompt);
    run_step(cache, prompt, 0, 330, piece, team, out);
    ASSERT_EQ(out, whole) << "pieces of " << piece;
  }
}

TEST(CacheOutput, DoesNotDependOnTheThreads) {
  const Prompt prompt = prompt_of(330);
  for (const size_t step : {1, 20, 330}) {
    const Outputs alone = run_prompt(prompt, Recipe{}, step, 1);
    for (const int n_threads : {2, 3, 5}) {
      ASSERT_EQ(run_prompt(prompt, Recipe{}, step, n_threads), alone)
          << n_threads << " threads, steps of " << step;
    }
  }
}

// U05: values of KV head j are all j + 1; each query head must read its own.
TEST(CacheOutput, EveryQueryHeadReadsItsKvHead) {
  struct Ratio {
    size_t n_heads;
    size_t n_kv_heads;
  };
  for (const Ratio ratio : {Ratio{9, 3}, {7, 1}, {28, 4}, {12, 2}, {5, 5}, {54, 6}}) {
    Prompt prompt(geometry(ratio.n_heads, 64, {ratio.n_kv_heads}), 70, 5);
    for (size_t i = 0; i < prompt.v[0].size(); ++i) {
      prompt.v[0][i] = static_cast<float>(i / 64 % ratio.n_kv_heads + 1);
    }
    for (const size_t step : {1, 70}) {
      const Outputs out = run_prompt(prompt, Recipe{}, step);
      for (size_t i = 0; i < out[0].size(); ++i) {
        const size_t head = i / 64 % ratio.n_heads;
        const auto wanted = static_cast<float>(head / (ratio.n_heads / ratio.n_kv_heads) + 1);
        ASSERT_NEAR(out[0][i], wanted, 1e-5) << ratio.n_heads << "/" << ratio.n_kv_heads << " head " << head;
      }
    }
  }
}

// Cropping to any length and going on is the same as never having gone further.
TEST(CacheCrop, GoesBackToAnyLength) {
  const Prompt prompt = prompt_of(200);
  const Prompt other = prompt_of(230, 2);
  const Outputs whole = run_prompt(prompt, Recipe{}, 200);
  PagePool pool;
  Cache cache(Recipe{}, prompt.shape, pool);
  Team team(1);
  for (const size_t left : {199, 193, 192, 191, 129, 128, 64, 63, 1, 0}) {
    Outputs out = empty_outputs(prompt);
    Outputs ignored = empty_outputs(other);
    run_rest(cache, prompt, 50, team, out);
    run_step(cache, other, 200, 230, 30, team, ignored);  // another continuation, to be forgotten
    cache.crop(left);
    ASSERT_EQ(cache.n_tokens(), left);
    ASSERT_EQ(cache.size_bytes(), prompt.shape.cache_bytes(Recipe{}, left));
    out = empty_outputs(prompt);
    run_rest(cache, prompt, 50, team, out);
    for (size_t layer = 0; layer < prompt.shape.n_layers; ++layer) {
      const auto offset = static_cast<ptrdiff_t>(left * prompt.q_width());
      ASSERT_TRUE(std::equal(whole[layer].begin() + offset, whole[layer].end(), out[layer].begin() + offset))
          << "cropped to " << left << " layer " << layer;
    }
  }
}

TEST(CacheFork, BothSidesGoOnAlone) {
  const Prompt prompt = prompt_of(150);
  Prompt other = prompt_of(150, 9);
  for (const size_t shared : {1, 63, 64, 65, 100}) {
    // The two prompts agree on the shared tokens only.
    for (size_t layer = 0; layer < prompt.shape.n_layers; ++layer) {
      const auto n = static_cast<ptrdiff_t>(shared * prompt.kv_width(layer));
      std::copy_n(prompt.k[layer].begin(), n, other.k[layer].begin());
      std::copy_n(prompt.v[layer].begin(), n, other.v[layer].begin());
    }
    PagePool pool;
    Team team(2);
    Cache first(Recipe{}, prompt.shape, pool);
    Outputs out = empty_outputs(prompt);
    Outputs out_other = empty_outputs(other);
    run_step(first, prompt, 0, shared, shared, team, out);
    const uint64_t used = pool.used_bytes();
    Cache second = first.fork();
    EXPECT_EQ(pool.used_bytes(), used);
    // Taking turns, one token each.
    for (size_t t = shared; t < 150; ++t) {
      run_step(first, prompt, t, t + 1, 1, team, out);
      run_step(second, other, t, t + 1, 1, team, out_other);
    }
    const Outputs wanted = run_prompt(prompt, Recipe{}, 150);
    const Outputs wanted_other = run_prompt(other, Recipe{}, 150);
    for (size_t layer = 0; layer < prompt.shape.n_layers; ++layer) {
      const auto offset = static_cast<ptrdiff_t>(shared * prompt.q_width());
      EXPECT_EQ(out[layer], wanted[layer]);
      EXPECT_TRUE(std::equal(out_other[layer].begin() + offset, out_other[layer].end(),
                             wanted_other[layer].begin() + offset))
          << shared;
    }
  }
}

TEST(CacheBudget, ARefusedStepChangesNothing) {
  const Prompt prompt = prompt_of(130);
  PagePool pool(prompt.shape.cache_bytes(Recipe{}, 128));
  Cache cache(Recipe{}, prompt.shape, pool);
  Team team(2);
  Outputs out = empty_outputs(prompt);
  run_step(cache, prompt, 0, 120, 120, team, out);
  EXPECT_THROW(cache.begin_step(10, 2), Error);
  EXPECT_EQ(cache.n_tokens(), 120u);
  EXPECT_EQ(cache.size_bytes(), pool.used_bytes());
  run_step(cache, prompt, 120, 128, 8, team, out);  // still usable, to the last token that fits
  EXPECT_EQ(cache.n_tokens(), 128u);
  EXPECT_EQ(run_prompt(prompt, Recipe{}, 130)[2][127 * prompt.q_width()], out[2][127 * prompt.q_width()]);
}

// Law 6, U37, U38: bytes reported are bytes allocated and follow from the shape.
TEST(CacheBytes, FollowFromShapeAndFormats) {
  const Prompt prompt = prompt_of(100);
  const size_t n_values = (2 + 6 + 1) * 40;  // of K, or of V, of a token
  for (const char* text : kRecipes) {
    const Recipe recipe = Recipe::parse(text);
    const size_t pair_bytes = info(recipe.key_format).value_bytes + info(recipe.value_format).value_bytes;
    EXPECT_EQ(prompt.shape.token_bytes(recipe), n_values * pair_bytes) << text;
    PagePool pool;
    Cache cache(recipe, prompt.shape, pool);
    EXPECT_EQ(cache.size_bytes(), 0u);
    Team team(1);
    Outputs out = empty_outputs(prompt);
    run_rest(cache, prompt, 10, team, out);
    EXPECT_EQ(cache.size_bytes(), 128 * n_values * pair_bytes) << text;
    EXPECT_EQ(cache.size_bytes(), prompt.shape.cache_bytes(recipe, 100)) << text;
    EXPECT_EQ(pool.used_bytes(), cache.size_bytes()) << text;
  }
}

// Law 7: what a step reads is counted, whether its tokens come alone, as a few or as a long prompt.
TEST(CacheStats, CountWhatIsRead) {
  const Prompt prompt = prompt_of(150);
  const uint64_t token_bytes = prompt.shape.token_bytes(Recipe{});
  for (const size_t n : {1, 5, 32, 33, 100}) {
    PagePool pool;
    Cache cache(Recipe{}, prompt.shape, pool);
    Team team(2);
    Outputs out = empty_outputs(prompt);
    run_step(cache, prompt, 0, 50, 50, team, out);
    run_step(cache, prompt, 50, 50 + n, n, team, out);
    uint64_t rows = 0;
    for (size_t i = 0; i < n; ++i) rows += 50 + i + 1;
    EXPECT_EQ(cache.last_step().n_tokens, 50 + n);
    EXPECT_EQ(cache.last_step().rows_read, rows * (2 + 6 + 1)) << n << " tokens";
    EXPECT_GE(cache.last_step().bytes_read, (50 + n) * token_bytes) << n << " tokens";
    EXPECT_LE(cache.last_step().bytes_read, (50 + n) * token_bytes * ((n + 31) / 32)) << n << " tokens";
  }
}

}  // namespace
}  // namespace quire::test
