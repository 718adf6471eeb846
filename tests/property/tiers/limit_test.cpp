// The memory of a cache with a tier, and what goes wrong.
#include <gtest/gtest.h>

#include <cerrno>

#include "base/error.h"
#include "property/tiers/scene.h"

namespace quire::test {
namespace {

std::string error_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

// At every moment pages, fetched rows and what is under way together stay below the budget, and the result is
// the same. What does not fit is refused before anything is computed.
TEST(TierLimit, ABudgetHoldsForEverythingInMemory) {
  const ButlerPrompt prompt(kTierShape, 6, 1000, 1, 2);
  for (const std::string recipe : {"full", "turbo4(frame=rotated)", "quire(budget=10%,frame=rotated)",
                                   "butler(budget=10%,sink=2,local=16,interval=3)"}) {
    TierRun memory(recipe, prompt);
    memory.run(900);
    const std::string placed = recipe + ",place=host";
    const uint64_t peak = prompt.shape.peak_bytes(Recipe::parse(placed), 0, 900, 0);
    for (const uint64_t more : {uint64_t{2'000'000}, uint64_t{1'200'000}}) {
      TierRun tier(placed, prompt, 2, peak + more);
      tier.run(900);
      EXPECT_TRUE(same(memory.out, tier.out)) << recipe;
      EXPECT_LE(tier.pool->account().peak_bytes(), tier.pool->budget_bytes());
      EXPECT_GT(tier.pool->account().used_bytes(), tier.pool->account().firm_bytes())
          << "the rest is put to use";
    }
    TierRun tight(placed, prompt, 1, peak + 100'000 + 512'000);
    const uint64_t used = tight.pool->account().used_bytes();
    if (peak > 600'000) {
      TierRun refused(placed, prompt, 1, peak - 100'000);
      const std::string error = error_of([&] { refused.step(900); });
      EXPECT_NE(error.find("bytes, and its budget is"), std::string::npos) << error;
      EXPECT_EQ(refused.cache->n_tokens(), 0u);
    }
    EXPECT_GT(used, 0u);
  }
}

TEST(TierLimit, TheLeastThatATierNeedsIsRefusedWithNumbers) {
  const ButlerPrompt prompt(kTierShape, 2, 100, 1, 2);
  const std::string error = error_of([&] { TierRun("full,place=host", prompt, 1, 200'000); });
  EXPECT_NE(error.find("200000 bytes"), std::string::npos) << error;
}

// What is named and compared counts too, and is refused before anything of a step is computed.
TEST(TierLimit, WhatAPredictionTakesCountsAndIsRefusedBefore) {
  const ButlerPrompt prompt(kTierShape, 6, 700, 1, 2);
  for (const std::string& place : {std::string(), std::string(",place=host(cache=1K)")}) {
    TierRun run("butler(budget=10%,sink=2,local=16,interval=3)" + place, prompt, 2, 50'000'000);
    run.step(640);
    EXPECT_EQ(run.cache->step_bytes(), 0u);
    run.step(1);
    run.step(1);
    const uint64_t named = run.cache->size_bytes() - run.cache->store().size_bytes();
    EXPECT_GE(run.cache->step_bytes(), named + 2 * 642 * (2 * 3 + 2) * sizeof(float));
    MemoryAccount& account = run.pool->account();
    if (place.empty()) {
      EXPECT_EQ(account.firm_bytes(), run.cache->store().size_bytes() + run.cache->step_bytes());
    }
    run.step(20);  // nothing is named
    EXPECT_EQ(run.cache->step_bytes(), 0u);
    const uint64_t rest = account.limit_bytes() - account.firm_bytes();
    ASSERT_TRUE(account.take(rest));
    const std::string error = error_of([&] { run.step(1); });
    EXPECT_NE(error.find("compares in a step needs"), std::string::npos) << error;
    EXPECT_EQ(run.cache->n_tokens(), 662u);
    account.give_back(rest);
    run.step(1);
  }
}

// The system may refuse memory in the middle of a step: nobody waits for ever, and the sequence begins anew.
TEST(TierFault, MemoryRefusedInsideAStepEndsItForAllThreads) {
  const ButlerPrompt prompt(kTierShape, 4, 470, 2, 2);
  for (const char* recipe : {"full,place=host(cache=1K)", "turbo4(frame=rotated)",
                             "butler(k=turbo4,v=turbo4,frame=rotated,budget=50),place=host(cache=1K)"}) {
    TierRun memory(recipe, prompt);
    memory.run(360);
    for (const int n_threads : {1, 2, 4}) {
      TierRun tier(recipe, prompt, n_threads, 50'000'000);
      MemoryAccount& account = tier.pool->account();
      uint64_t taken = 0;
      tier.before_layer = [&](size_t layer) {
        if (layer != 2) return;
        taken = account.limit_bytes() - account.firm_bytes();
        ASSERT_TRUE(account.take(taken));
      };
      EXPECT_NE(error_of([&] { tier.step(360); }), "") << recipe << n_threads;
      tier.before_layer = {};
      account.give_back(taken);
      EXPECT_TRUE(tier.cache->is_broken());
      EXPECT_NE(error_of([&] { tier.step(1); }).find("given up"), std::string::npos);
      EXPECT_NE(error_of([&] { tier.cache->crop(1); }).find("given up"), std::string::npos);
      tier.cache->crop(0);
      tier.run(360);
      EXPECT_TRUE(same(memory.out, tier.out)) << recipe << n_threads;
    }
  }
}

// A fault ends the step with a sentence, and every later step too; the sequence is as long as it was.
TEST(TierFault, EndsTheStepAndIsToldToTheNext) {
  const ButlerPrompt prompt(kTierShape, 4, 640, 2, 2);
  struct Case {
    std::function<void(Faults&)> set;
    const char* says;
  };
  const Case cases[] = {
      {[](Faults& faults) { faults.read_error = EIO; }, "Input/output error"},
      {[](Faults& faults) { faults.flips_all = true; }, "are not what was written there"},
      {[](Faults& faults) { faults.end = 8192; }, "has been cut short"},
  };
  for (const char* recipe : {"full", "turbo4(frame=rotated)", "quire(budget=10%,frame=rotated,dense=0)",
                             "butler(budget=50%,sink=2,local=16)", "selfindex(budget=10%)"}) {
    for (const std::string& place :
         {std::string("host(cache=1K)"), "disk(path=" + temporary_folder() + ",cache=1K)"}) {
      for (const Case& each : cases) {
        auto faults = std::make_shared<Faults>();
        TierRun tier(std::string(recipe) + ",place=" + place, prompt, 2, 0, faults);
        tier.step(600);
        each.set(*faults);
        std::string error;
        while (error.empty() && tier.cache->n_tokens() < prompt.n_tokens) {
          error = error_of([&] { tier.step(1); });
        }
        ASSERT_NE(error.find(each.says), std::string::npos)
            << recipe << place << each.says << ": " << error << tier.counts.fetched_pieces;
        EXPECT_NE(error.find("offset"), std::string::npos) << error;
        EXPECT_EQ(error.find('\n'), std::string::npos);
        EXPECT_EQ(error_of([&] { tier.step(1); }), error);
      }
    }
  }
}

TEST(TierFault, ADiskThatIsFullEndsThePrompt) {
  const ButlerPrompt prompt(kTierShape, 4, 500, 2, 2);
  for (const char* recipe : {"full", "turbo4(frame=rotated)", "butler(budget=50%)"}) {
    auto faults = std::make_shared<Faults>();
    faults->write_error = ENOSPC;
    TierRun full(std::string(recipe) + ",place=host", prompt, 2, 0, faults);
    const std::string error = error_of([&] { full.step(400); });
    EXPECT_NE(error.find("No space left"), std::string::npos) << error;
    EXPECT_EQ(full.cache->n_tokens(), 0u);
    TierRun small(std::string(recipe) + ",place=host(size=100K)", prompt);
    EXPECT_NE(error_of([&] { small.step(400); }).find("it may take 100000 bytes"), std::string::npos);
  }
}

}  // namespace
}  // namespace quire::test
