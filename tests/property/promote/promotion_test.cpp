// Which rows get copies as a sequence goes on: attention promotes, pressure forgets, and every token stays
// somewhere. Names say which fault of the published code a test would have caught.
#include <gtest/gtest.h>

#include <set>

#include "property/promote/scene.h"

namespace quire::test {
namespace {

Prompt prompt_of(size_t n_tokens, uint64_t seed = 1) {
  return Prompt(geometry(6, 64, {2, 6, 1}), n_tokens, seed);
}

bool has_page(const Decoding& decoding, size_t page) {
  const std::vector<size_t> pages = decoding.pages_with_copies();
  return std::find(pages.begin(), pages.end(), page) != pages.end();
}

// Cold tokens are scored, and scores belong to the tokens' positions after many have become cold.
TEST(Promotion, AttentionBringsAColdPageBack) {
  Prompt prompt = prompt_of(700);
  quieten(prompt);
  like(prompt, 620, 700, 301, 16);
  Decoding decoding(prompt, monarch("initial_sticky=0,promote=0.5"), 450);
  decoding.steps(170);
  ASSERT_EQ(decoding.cache.residency().page_ins, 0u);
  decoding.step();
  EXPECT_EQ(decoding.pages_with_copies(), std::vector<size_t>{301 / 16});
  EXPECT_EQ(decoding.cache.residency().sticky_tokens, 0u);
  decoding.step();  // the second hit
  EXPECT_EQ(decoding.cache.residency().sticky_tokens, 16u);
  EXPECT_EQ(decoding.cache.residency().promotions, 1u);
  // Its score is that of the copy now.
  EXPECT_GT(decoding.cache.last_step().page_scores[301 / 16] / 3, 4.0);
}

// Sticky pages stay when nothing asks for them any more; others go when room is needed.
TEST(Promotion, StickyPagesStayAndIdlePagesGo) {
  Prompt prompt = prompt_of(1000);
  const size_t needles[] = {100, 164, 228, 292, 356, 420, 484};
  like(prompt, 900, 905, needles[0], 16);  // five hits
  for (size_t i = 1; i < 7; ++i) like(prompt, 905 + 5 * i, 906 + 5 * i, needles[i], 16);
  Decoding decoding(prompt, monarch("initial_sticky=0,promote=0.5,sticky=4,decay=0.5"), 900);
  decoding.steps(60);
  EXPECT_TRUE(has_page(decoding, needles[0] / 16));
  EXPECT_FALSE(has_page(decoding, needles[1] / 16));
  for (size_t i = 4; i < 7; ++i) EXPECT_TRUE(has_page(decoding, needles[i] / 16)) << i;
  const Residency residency = decoding.cache.residency();
  EXPECT_EQ(residency.page_ins, 7u);
  EXPECT_EQ(residency.page_outs, 3u);
  EXPECT_EQ(residency.sticky_tokens, 16u);
}

TEST(Promotion, SwapsAreLimited) {
  Prompt prompt = prompt_of(900);
  for (const size_t t : {100, 200, 300, 400}) like(prompt, 880, 900, t, 16);
  Decoding decoding(prompt, monarch("initial_sticky=0,promote=0.5,swaps=1"), 880);
  for (size_t i = 1; i < 6; ++i) {
    decoding.step();
    EXPECT_EQ(decoding.cache.residency().page_ins, std::min<size_t>(i, 4));
  }
}

// A page is copied once it is coded to its last row: the window's end runs through the others.
TEST(Promotion, PagesAreCopiedOnceTheyAreColdAsAWhole) {
  Prompt prompt = prompt_of(500);
  for (size_t t = 150; t < 420; t += 3) like(prompt, 300, 500, t, 9);
  Decoding decoding(prompt, monarch("promote=0,page=48,max_hot=500,swaps=100"), 200);
  while (decoding.cache.n_tokens() < 500) {
    decoding.step();
    for (const size_t page : decoding.pages_with_copies()) ASSERT_LE((page + 1) * 48, decoding.n_sealed());
  }
  EXPECT_TRUE(has_page(decoding, 7));  // rows 336 to 383
}

// A mean over all queries of the prompt would prefer what early ones liked.
TEST(Promotion, ThePromptsLastQueriesChoose) {
  Prompt prompt = prompt_of(900);
  like(prompt, 120, 800, 100, 16);
  like(prompt, 840, 900, 500, 14);
  Decoding decoding(prompt, monarch("initial_sticky=1,promote=1"), 900);
  EXPECT_EQ(decoding.pages_with_copies(), std::vector<size_t>{500 / 16});
  EXPECT_EQ(decoding.cache.residency().sticky_tokens, 16u);
}

// Queries that like nothing: every token that a query sees has the same weight, and so has its mean, also of
// tokens that only some of the observed queries see.
TEST(Promotion, ObservationIsFair) {
  Prompt prompt = prompt_of(640);
  for (auto& q : prompt.q) std::fill(q.begin(), q.end(), 0.0f);
  for (const size_t pieces : {1, 2}) {
    Decoding decoding(prompt, Recipe::parse("monarch(frame=rotated,window=1,max_hot=64)"), 640 / pieces);
    if (pieces == 2) run_step(decoding.cache, prompt, 320, 640, 100, decoding.team, decoding.out);
    const StepStats& stats = decoding.cache.last_step();
    ASSERT_EQ(stats.token_scores.size(), 9 * 64u);
    ASSERT_EQ(stats.observed_layers, 3u);
    for (size_t t = 4; t < stats.token_scores.size(); ++t) {
      ASSERT_GE(stats.token_scores[t] / 18, 0.999 / 640) << t;
      ASSERT_LE(stats.token_scores[t] / 18, 1.001 / 577) << t;
    }
  }
}

// Prompts of any length, with an idea of hot that is much smaller; scattered likings.
TEST(Promotion, TokensAreConservedAndStickyOnesFit) {
  for (const size_t page_tokens : {1, 10, 16, 64}) {
    Prompt prompt = prompt_of(2000, page_tokens);
    Random random(page_tokens);
    for (size_t i = 0; i < 60; ++i) {
      const size_t from = 1800 + random.below(200);
      like(prompt, from, std::min<size_t>(2000, from + random.below(30)), 10 + random.below(1700), 14);
    }
    const Recipe recipe =
        monarch("promote=0.1,sticky=1,initial_sticky=500,max_hot=200,page=" + std::to_string(page_tokens));
    Decoding decoding(prompt, recipe, 1800);
    while (decoding.cache.n_tokens() < 2000) {
      decoding.step();
      const Residency residency = decoding.cache.residency();
      ASSERT_EQ(residency.total_tokens, decoding.cache.n_tokens());
      ASSERT_EQ(residency.hot_tokens + residency.cold_tokens, residency.total_tokens);
      const size_t n_exact = 4 + residency.total_tokens - decoding.n_sealed();
      ASSERT_EQ(residency.hot_tokens, n_exact + decoding.copies().n_rows());
      ASSERT_LE(decoding.copies().n_rows(), 136u);
      ASSERT_LE(residency.sticky_tokens, decoding.copies().n_rows());
      ASSERT_EQ(residency.page_ins - residency.page_outs, decoding.pages_with_copies().size());
      // Each once.
      const auto pages = decoding.pages_with_copies();
      ASSERT_EQ(std::set<size_t>(pages.begin(), pages.end()).size(), pages.size());
    }
    EXPECT_GT(decoding.cache.residency().promotions, 0u);
  }
}

TEST(Promotion, ResidencyOfOtherRecipes) {
  const Prompt prompt = prompt_of(400);
  const struct {
    const char* recipe;
    uint64_t n_hot;
  } cases[] = {
      {"full", 400}, {"turbo4(frame=rotated)", 400 - 320 + 4}, {"quire(frame=rotated,tail=200)", 212}};
  for (const auto& one : cases) {
    Decoding decoding(prompt, Recipe::parse(one.recipe), 400);
    EXPECT_EQ(decoding.cache.residency().hot_tokens, one.n_hot) << one.recipe;
    EXPECT_EQ(decoding.cache.residency().cold_tokens, 400 - one.n_hot);
    EXPECT_EQ(decoding.cache.residency().page_ins, 0u);
  }
}

// The last part of a sequence that promotes, forgets and becomes sticky.
struct Busy {
  Busy() : prompt(prompt_of(800)) {
    Random random(3);
    for (size_t i = 0; i < 25; ++i) {
      const size_t from = 700 + 4 * i;
      like(prompt, from, from + 3, 10 + random.below(600), 15);
    }
  }
  Prompt prompt;
  Recipe recipe = monarch("promote=0.3,budget=20,initial_sticky=2,sticky=50");
};

TEST(Promotion, ThreadsDoNotMatter) {
  const Busy busy;
  Decoding alone(busy.prompt, busy.recipe, 700);
  alone.steps(100);
  EXPECT_GT(alone.cache.residency().page_outs, 0u);
  for (const int n_threads : {2, 3, 4}) {
    Decoding shared(busy.prompt, busy.recipe, 700, n_threads);
    shared.steps(100);
    for (size_t t = 700; t < 800; ++t) ASSERT_EQ(outputs_of(shared, t), outputs_of(alone, t)) << t;
    EXPECT_EQ(shared.pages_with_copies(), alone.pages_with_copies());
  }
}

// Both go their own ways from shared copies.
TEST(Promotion, ForksAreIndependent) {
  const Busy busy;
  Decoding alone(busy.prompt, busy.recipe, 700);
  alone.steps(100);
  Decoding first(busy.prompt, busy.recipe, 700);
  first.steps(30);
  ASSERT_GT(first.copies().n_rows(), 0u);
  Cache fork = first.cache.fork();
  EXPECT_EQ(fork.residency().page_ins, first.cache.residency().page_ins);
  // The fork reads something else first, which moves its pages.
  Prompt other = busy.prompt;
  like(other, 730, 735, 30, 22);
  like(other, 735, 740, 500, 22);
  Outputs out = empty_outputs(other);
  for (size_t t = 730; t < 740; ++t) run_step(fork, other, t, t + 1, 1, first.team, out);
  EXPECT_GT(fork.residency().page_ins, first.cache.residency().page_ins);
  first.steps(70);
  for (size_t t = 730; t < 800; ++t) ASSERT_EQ(outputs_of(first, t), outputs_of(alone, t)) << t;
  EXPECT_EQ(first.pages_with_copies(), alone.pages_with_copies());
  // And a fork that reads the same gives the same.
  Decoding second(busy.prompt, busy.recipe, 700);
  second.steps(30);
  Cache twin = second.cache.fork();
  out = empty_outputs(busy.prompt);
  for (size_t t = 730; t < 800; ++t) run_step(twin, busy.prompt, t, t + 1, 1, second.team, out);
  EXPECT_EQ(out[0].back(), alone.out[0].back());
}

TEST(Promotion, CutToNothingItStartsAnew) {
  const Busy busy;
  Decoding fresh(busy.prompt, busy.recipe, 700);
  fresh.steps(40);
  Decoding used(busy.prompt, busy.recipe, 700);
  used.steps(100);
  used.cache.crop(0);
  EXPECT_EQ(used.cache.size_bytes(), 0u);
  EXPECT_EQ(used.cache.residency().page_ins, 0u);
  run_step(used.cache, busy.prompt, 0, 700, 700, used.team, used.out);
  used.steps(40);
  for (size_t t = 700; t < 740; ++t) ASSERT_EQ(outputs_of(used, t), outputs_of(fresh, t)) << t;
}

// Reported, allocated, predicted; and a budget of what was predicted is kept.
TEST(Promotion, BytesStayWithinThePrediction) {
  const Busy busy;
  const uint64_t most = busy.prompt.shape.peak_bytes(busy.recipe, 0, 700, 0);
  const uint64_t late = busy.prompt.shape.peak_bytes(busy.recipe, 700, 800, 1);
  Decoding decoding(busy.prompt, busy.recipe, 700, 1, std::max(most, late));
  while (decoding.cache.n_tokens() < 800) {
    decoding.step();
    const uint64_t n_bytes = decoding.cache.store().size_bytes();  // without the numbers of the policy
    ASSERT_EQ(n_bytes, decoding.pool.used_bytes());
    ASSERT_LE(n_bytes, busy.prompt.shape.cache_bytes(busy.recipe, decoding.cache.n_tokens()));
    ASSERT_LE(n_bytes, decoding.pool.budget_bytes());
  }
  EXPECT_EQ(decoding.copies().n_rows(), 64u);
}

// Layers that are read whole have no copies and take part in nothing but the prompt's observation.
TEST(Promotion, DenseLayers) {
  const Busy busy;
  const Recipe recipe = monarch("promote=0.3,dense=2,cold=0,budget=100%");
  Decoding decoding(busy.prompt, recipe, 700);
  decoding.steps(50);
  EXPECT_LE(decoding.error_of_step([](size_t, size_t) { return true; }), allowed_error(recipe));
  EXPECT_EQ(decoding.cache.store().view(1, 750).copies, nullptr);
  EXPECT_NE(decoding.cache.store().view(2, 750).copies, nullptr);
  Decoding all(busy.prompt, monarch("promote=0.3,dense=7"), 700);
  all.steps(10);
  EXPECT_EQ(all.cache.residency().page_ins, 0u);
}

}  // namespace
}  // namespace quire::test
