// A tier changes nothing of what attention gives.
#include <gtest/gtest.h>

#include "property/tiers/scene.h"

namespace quire::test {
namespace {

// Every recipe in the host's memory and on a disk by one kind of device, with far less memory for fetched
// rows than there are rows.
TEST(TierEqual, EveryRecipeGivesTheSameBitsFromATier) {
  const ButlerPrompt prompt(kTierShape, 3, 618, 1, 2);
  bool by_threads = false;
  for (const std::string& recipe : tier_recipes()) {
    TierRun memory(recipe, prompt);
    memory.run(520);
    by_threads = !by_threads;
    const std::string disk = "disk(path=" + temporary_folder() + ",cache=1K," +
                             (by_threads ? "device=threads,ahead=0)" : "ahead=2)");
    for (const std::string& place : {std::string("host(cache=1K)"), disk}) {
      TierRun tier(recipe + ",place=" + place, prompt);
      tier.run(520);
      EXPECT_TRUE(same(memory.out, tier.out)) << recipe << " " << place;
      EXPECT_GT(tier.cache->residency().outside_tokens, 255u) << recipe;
      EXPECT_GT(tier.counts.written_bytes, 0u) << recipe;
      EXPECT_GT(tier.counts.fetched_pieces, 0u) << recipe;
      EXPECT_EQ(memory.cache->last_step().rows_read, tier.cache->last_step().rows_read) << recipe;
      EXPECT_EQ(memory.cache->last_step().bytes_read, tier.cache->last_step().bytes_read) << recipe;
      EXPECT_LT(tier.cache->store().size_bytes(), memory.cache->store().size_bytes()) << recipe;
    }
  }
}

void run_short(TierRun& run) {
  run.step(320);
  while (run.cache->n_tokens() < run.prompt.n_tokens) run.step(1);
}

// However far ahead rows are fetched (cases U20).
TEST(TierEqual, AnyLookAheadGivesTheSameBits) {
  const ButlerPrompt prompt({2, 1, 40}, 30, 327, 2, 3);
  for (const char* recipe : {"full", "butler(budget=10%,sink=2,local=16,interval=3,neighbours=on)",
                             "k=turbo4,v=turbo4,frame=rotated,select=butler(budget=10%,local=64)"}) {
    TierRun memory(recipe, prompt);
    run_short(memory);
    const bool named = std::string(recipe).starts_with("butler");
    for (size_t ahead = 1; ahead <= 31; ahead += named ? 1 : 6) {
      TierRun tier(std::string(recipe) + ",place=host(cache=1K,ahead=" + std::to_string(ahead) + ")", prompt);
      run_short(tier);
      ASSERT_TRUE(same(memory.out, tier.out)) << recipe << " " << ahead;
    }
  }
}

TEST(TierEqual, ThreadsAndDelaysAndShortReadsChangeNothing) {
  const ButlerPrompt prompt(kTierShape, 3, 424, 3, 2);
  const std::string disk = "disk(path=" + temporary_folder() + ",cache=1K";
  const std::pair<int, std::string> runs[] = {
      {1, disk + ")"}, {2, "host(cache=1K)"}, {4, disk + ",device=threads)"}, {4, disk + ")"}};
  for (const char* recipe : {"full", "turbo4(frame=rotated)", "quire(budget=10%,frame=rotated)",
                             "butler(budget=10%,sink=2,local=16,interval=3)",
                             "k=turbo4,v=turbo4,frame=rotated,select=butler(budget=10%,local=64)"}) {
    TierRun memory(recipe, prompt);
    memory.run(330);
    for (const auto& [n_threads, place] : runs) {
      auto faults = std::make_shared<Faults>();
      faults->short_every = 3;
      faults->put_off_every = 11;
      faults->delay_us = n_threads == 2 ? 0 : 50;
      TierRun tier(std::string(recipe) + ",place=" + place, prompt, n_threads, 0, faults);
      tier.run(330);
      EXPECT_TRUE(same(memory.out, tier.out)) << recipe << " " << place << " " << n_threads;
    }
  }
}

// Where everything fits, nothing is fetched twice.
TEST(TierEqual, RowsThatWereFetchedStayWhereThereIsRoom) {
  const ButlerPrompt prompt(kTierShape, 3, 500, 4, 2);
  for (const char* recipe : {"full", "turbo4(frame=rotated)"}) {
    TierRun tier(std::string(recipe) + ",place=host", prompt);
    tier.run(400);
    tier.cache->fork();
    const TierCounts step = tier.cache->last_step().tier;
    EXPECT_EQ(step.fetched_bytes, 0u) << recipe;
    EXPECT_EQ(step.hits, step.pieces) << recipe;
    EXPECT_GT(step.pieces, 0u);
  }
}

// Between predictions the same rows are read again: where they do not fit they are told ahead all the same.
TEST(TierEqual, StepsThatRepeatASelectionLookAheadWhereItDoesNotFit) {
  const ButlerPrompt prompt(kTierShape, 6, 640, 5, 2);
  for (const char* format : {"k=f16,v=f16", "k=turbo4,v=turbo4,frame=rotated"}) {
    const std::string recipe = std::string(format) + ",select=butler(budget=200,local=16,interval=1000)";
    TierRun small(recipe + ",place=host(cache=1K)", prompt), large(recipe + ",place=host", prompt);
    uint64_t n_small = 0, n_large = 0;
    for (TierRun* run : {&small, &large}) run->step(620);
    for (int i = 0; i < 8; ++i) {
      for (TierRun* run : {&small, &large}) run->step(1);
      n_small = small.cache->last_step().tier.wanted;
      n_large = large.cache->last_step().tier.wanted;
    }
    EXPECT_EQ(small.cache->last_step().predictions.predictor_calls, 0u);
    EXPECT_LE(n_large, 8u) << "the pages of layer 0";
    EXPECT_GE(n_small, 8u + 5 * 2 * 6) << "and pages of each head of the others: " << format;
  }
}

}  // namespace
}  // namespace quire::test
