// Caches whose reserved keys stay exact beside their codes: keep=log(partial=on).
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "base/error.h"
#include "property/keep/scene.h"
#include "property/sealed/scene.h"

namespace quire::test {
namespace {

// By the rule: the keys that are exact when n tokens are there, of which n_sealed pages are coded.
std::set<uint32_t> exact_positions(const Recipe& recipe, size_t n_sealed) {
  LogReserveState state(log_reserve(recipe.keep, recipe.sink_tokens));
  std::vector<uint32_t> settled;
  state.append(n_sealed * kTokensPerPage, settled);
  return {state.reserved().begin(), state.reserved().end()};
}

// Outputs of tokens that came one by one against attention over reserved keys as they are, the other keys and
// all values as coded.
void check_outputs(const Geometry& shape, const std::string& text) {
  const size_t n = 420, dim = shape.head_dim;
  const Recipe recipe = Recipe::parse(text);
  ASSERT_EQ(recipe.text(), text);
  Prompt prompt(shape, n, 31);
  for (float& x : prompt.q[0]) x *= 4;  // weights that differ
  Keeper keeper(prompt, text);
  keeper.grow(prompt, 300, 300);
  keeper.grow(prompt, n, 1);
  const CacheStatistics statistics(recipe, shape, {});
  const size_t group = shape.n_heads / shape.n_kv_heads[0];
  double worst = 0, worst_if_coded = 0;
  for (size_t token = 310; token < n; token += 11) {
    const size_t n_sealed = token / 64;  // before the token's own step codes anything
    const std::set<uint32_t> exact = exact_positions(recipe, n_sealed);
    ASSERT_GT(exact.size(), 10u);
    for (size_t h = 0; h < shape.n_heads; ++h) {
      const size_t head = h / group;
      const HeadFrames frames = statistics.frames(0, head);
      const auto rows = [&](const std::vector<float>& all, bool keys) {
        return stored_rows(recipe, frames, keys, head_rows(all, token + 1, prompt.kv_width(0), head, dim),
                           dim, n_sealed);
      };
      const std::vector<float> coded = rows(prompt.k[0], true);
      const std::vector<float> v = rows(prompt.v[0], false);
      std::vector<float> k = coded;
      for (const uint32_t t : exact) {
        for (size_t d = 0; d < dim; ++d) {
          k[t * dim + d] = f16_to_f32(f32_to_f16(prompt.k[0][t * prompt.kv_width(0) + head * dim + d]));
        }
      }
      const auto wanted = [&](const std::vector<float>& keys) {
        return attention(
                   prompt.q[0].data() + token * prompt.q_width() + h * dim, dim, token + 1,
                   [](size_t) { return true; }, [&](size_t t, size_t d) { return double{keys[t * dim + d]}; },
                   [&](size_t t, size_t d) { return double{v[t * dim + d]}; })
            .output;
      };
      const float* got = keeper.out[0].data() + token * prompt.q_width() + h * dim;
      worst = std::max(worst, worst_error(wanted(k), got));
      worst_if_coded = std::max(worst_if_coded, worst_error(wanted(coded), got));
    }
  }
  EXPECT_LT(worst, 2e-3) << text;
  EXPECT_GT(worst_if_coded, 20 * worst) << text;  // exact keys do matter here
}

TEST(PartialReserve, ReservedKeysAreExactAndTheirValuesCoded) {
  check_outputs(geometry(4, 64, {2}), "logquant(reserve=64,partial=on)");
  check_outputs(geometry(3, 72, {1}), "logquant(reserve=64,rule=strided,partial=on,sink=3)");
  check_outputs(geometry(2, 128, {2}), "k=token2,v=kivi4,keep=log(reserve=90,partial=on)");
}

TEST(PartialReserve, BytesStepsAndForks) {
  const Prompt prompt(geometry(6, 64, {3, 2}), 700, 32);
  const Recipe recipe = Recipe::parse("logquant(reserve=96,partial)");
  PagePool pool(prompt.shape.peak_bytes(recipe, 0, 700, 0));
  Cache cache(recipe, prompt.shape, pool);
  Team team(1);
  Outputs once = empty_outputs(prompt);
  run_step(cache, prompt, 0, 640, 640, team, once);
  EXPECT_EQ(pool.used_bytes(), prompt.shape.cache_bytes(recipe, 640));
  Cache fork = cache.fork();
  Outputs forked = once;
  while (cache.n_tokens() < 700)
    run_step(cache, prompt, cache.n_tokens(), cache.n_tokens() + 1, 1, team, once);
  EXPECT_EQ(cache.size_bytes(), prompt.shape.cache_bytes(recipe, 700));
  while (fork.n_tokens() < 700) run_step(fork, prompt, fork.n_tokens(), fork.n_tokens() + 1, 1, team, forked);
  EXPECT_EQ(forked, once);
  for (const size_t step : {1, 7, 64}) {
    Keeper keeper(prompt, recipe.text());
    keeper.grow(prompt, 640, step);
    keeper.grow(prompt, 700, 1);
    for (size_t layer = 0; layer < 2; ++layer) {
      const auto decoded = static_cast<ptrdiff_t>(640 * prompt.q_width());
      EXPECT_TRUE(
          std::equal(once[layer].begin() + decoded, once[layer].end(), keeper.out[layer].begin() + decoded))
          << step;
    }
  }
}

TEST(PartialReserve, WhatItCannotGoWith) {
  for (const char* text : {"k=f16,v=f16,keep=log(partial=on)", "k=f16,v=kivi2,keep=log(partial=on)",
                           "quire(keep=log(partial=on))"}) {
    EXPECT_THROW(Recipe::parse(text), Error) << text;
  }
}

}  // namespace
}  // namespace quire::test
