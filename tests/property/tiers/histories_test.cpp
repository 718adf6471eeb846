// Sequences with a tier that fork, are cut, saved and loaded: no token is lost or doubled, and nothing
// changes.
#include <gtest/gtest.h>

#include <cerrno>

#include "base/error.h"
#include "property/cache/saved.h"
#include "property/tiers/scene.h"

namespace quire::test {
namespace {

size_t shared_tokens(const Cache& cache) {
  const Residency residency = cache.residency();
  EXPECT_EQ(residency.total_tokens, residency.hot_tokens + residency.cold_tokens + residency.dropped_tokens);
  EXPECT_LE(residency.outside_tokens, residency.total_tokens);
  return residency.total_tokens;
}

TEST(TierHistory, AForkGoesOnFromTheSamePages) {
  const ButlerPrompt prompt(kTierShape, 3, 616, 1, 2);
  for (const std::string& recipe : tier_recipes()) {
    TierRun memory(recipe, prompt);
    memory.run(520);
    TierRun tier(recipe + ",place=host(cache=1K)", prompt);
    tier.step(520);
    tier.step(70);
    const uint64_t outside = tier.cache->store().tier()->outside_bytes();
    Cache other = tier.cache->fork();
    EXPECT_EQ(tier.cache->store().tier()->outside_bytes(), outside) << "nothing is written twice";
    EXPECT_EQ(shared_tokens(other), 590u);
    *tier.cache = std::move(other);
    tier.step(20);
    while (tier.cache->n_tokens() < prompt.n_tokens) tier.step(1);
    EXPECT_TRUE(same(memory.out, tier.out)) << recipe;
  }
}

TEST(TierHistory, AFileSaysNothingOfPlaces) {
  const ButlerPrompt prompt(kTierShape, 3, 616, 2, 2);
  for (const std::string& recipe : tier_recipes()) {
    TierRun memory(recipe, prompt);
    memory.step(520);
    memory.step(70);
    const Bytes file = save(*memory.cache);
    TierRun tier(recipe + ",place=host(cache=1K)", prompt);
    tier.step(520);
    tier.step(70);
    EXPECT_EQ(save(*tier.cache), file) << recipe;
    // Into the other place, either way, and on from there.
    TierRun moved_out(recipe + ",place=host(cache=1K)", prompt);
    TierRun moved_in(recipe, prompt);
    EXPECT_EQ(load(file, *moved_out.cache), "");
    EXPECT_EQ(load(save(*tier.cache), *moved_in.cache), "");
    EXPECT_EQ(shared_tokens(*moved_out.cache), 590u);
    for (TierRun* run : {&memory, &tier, &moved_out, &moved_in}) {
      run->step(20);
      run->out = empty_outputs(prompt);
      while (run->cache->n_tokens() < prompt.n_tokens) run->step(1);
    }
    for (const TierRun* run : {&tier, &moved_out, &moved_in})
      EXPECT_TRUE(same(memory.out, run->out)) << recipe;
  }
}

// Exact rows may be cut anywhere, codes not: as in memory.
TEST(TierHistory, WhatIsCutComesBackFromTheTier) {
  const ButlerPrompt prompt(kTierShape, 2, 520, 3, 2);
  for (const char* recipe : {"full", "quest(budget=20%)", "doublesparse(budget=15%)", "oracle(budget=30)"}) {
    for (const size_t n : {size_t{1}, size_t{64}, size_t{250}, size_t{256}, size_t{300}, size_t{469}}) {
      TierRun memory(recipe, prompt);
      TierRun tier(std::string(recipe) + ",place=host(cache=1K)", prompt);
      for (TierRun* run : {&memory, &tier}) {
        run->step(400);
        run->step(70);
        run->cache->crop(n);
        EXPECT_EQ(shared_tokens(*run->cache), n);
        run->out = empty_outputs(prompt);
        run->step(30);
        for (int i = 0; i < 5; ++i) run->step(1);
      }
      EXPECT_EQ(tier.cache->coded_tokens(), 0u);
      EXPECT_TRUE(same(memory.out, tier.out)) << recipe << " " << n;
    }
  }
}

// A cut that fails changes nothing.
TEST(TierHistory, ACutThatCannotFetchItsRowsLeavesTheSequenceAsItIs) {
  const ButlerPrompt prompt(kTierShape, 3, 520, 3, 2);
  auto faults = std::make_shared<Faults>();
  TierRun tier("full,place=host(cache=1K)", prompt, 1, 0, faults);
  tier.step(500);
  const auto lengths = [&] {
    std::vector<size_t> n_pages;
    for (size_t layer = 0; layer < 3; ++layer) {
      const LayerView view = tier.cache->store().view(layer, tier.cache->n_tokens());
      n_pages.push_back(view.pages.size());
      n_pages.push_back(view.n_sealed());
    }
    return n_pages;
  };
  const std::vector<size_t> before = lengths();
  faults->read_error = EIO;
  EXPECT_THROW(tier.cache->crop(100), Error);
  EXPECT_EQ(tier.cache->n_tokens(), 500u);
  EXPECT_EQ(lengths(), before);
  tier.cache->crop(0);
  EXPECT_EQ(shared_tokens(*tier.cache), 0u);
}

TEST(TierHistory, ACacheIsReplacedByOneOfAnotherTier) {
  const ButlerPrompt prompt(kTierShape, 2, 520, 3, 2);
  TierRun second("full,place=host(cache=1K)", prompt), first("full,place=host(cache=1K)", prompt);
  first.step(400);
  second.step(450);
  *first.cache = std::move(*second.cache);
  EXPECT_EQ(shared_tokens(*first.cache), 450u);
  first.step(20);
}

// A sealed page whose rows are all kept exact has none to fetch.
TEST(TierHistory, PagesWithoutCodedRowsAreNotRead) {
  const ButlerPrompt prompt(kTierShape, 2, 560, 3, 2);
  const std::string recipe = "k=turbo4,v=turbo4,stats=prompt,full_rows=60,tail=448,select=oracle(budget=30)";
  TierRun memory(recipe, prompt), tier(recipe + ",place=host", prompt);
  for (TierRun* run : {&memory, &tier}) {
    run->step(512);
    while (run->cache->n_tokens() < prompt.n_tokens) run->step(1);
  }
  EXPECT_TRUE(same(memory.out, tier.out));
}

TEST(TierHistory, RoomOutsideGoesBackWhenNobodyHoldsThePages) {
  const ButlerPrompt prompt(kTierShape, 3, 520, 3, 2);
  TierRun tier("turbo4(frame=rotated),place=host", prompt);
  tier.step(400);
  Tier& own = *tier.cache->store().tier();
  EXPECT_GT(own.outside_bytes(), 0u);
  Cache other = tier.cache->fork();
  tier.cache->crop(0);
  EXPECT_GT(own.outside_bytes(), 0u);
  other.crop(0);
  EXPECT_EQ(own.outside_bytes(), 0u);
  tier.run(400);
  EXPECT_GT(own.outside_bytes(), 0u);
}

}  // namespace
}  // namespace quire::test
