// Which pages are promoted, which go, and which stay: on made-up attention, without a cache.
#include "policy/hot_pages.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "property/random.h"

namespace quire {
namespace {

constexpr Move::Kind kCopy = Move::Kind::kCopy;
constexpr Move::Kind kForget = Move::Kind::kForget;

HotPageSettings settings_of(size_t capacity_pages) {
  HotPageSettings settings;
  settings.capacity_pages = capacity_pages;
  return settings;
}

// Scores of n pages, 0 but for those named.
std::vector<float> scores_of(size_t n, std::initializer_list<std::pair<size_t, float>> some) {
  std::vector<float> scores(n, 0.0f);
  for (const auto& [page, score] : some) scores[page] = score;
  return scores;
}

size_t n_resident(const HotPages& hot) {
  return static_cast<size_t>(
      std::count_if(hot.pages().begin(), hot.pages().end(), [](const auto& page) { return page.resident; }));
}

TEST(HotPageSettings, TheWindowTakesItsPart) {
  PolicyChoice choice = PolicyChoice::usual(Policy::kHotPages);
  const auto usual = HotPageSettings::of(choice, 512, 4);
  EXPECT_EQ(usual.capacity_pages, 16u);
  EXPECT_EQ(usual.page_tokens, 16u);
  EXPECT_EQ(usual.trigger, ColdTrigger::kMass);
  EXPECT_EQ(HotPageSettings::of(choice, 768, 4).capacity_pages, 0u);
  EXPECT_EQ(HotPageSettings::of(choice, 5000, 4).capacity_pages, 0u);
  choice.values[1] = 10;  // page
  EXPECT_EQ(HotPageSettings::of(choice, 512, 4).capacity_pages, 25u);
}

// The published code never scores cold tokens, so that nothing is ever promoted from there.
TEST(HotPages, AColdPageIsPromotedByItsAttention) {
  HotPages hot(settings_of(4));
  EXPECT_TRUE(hot.after_step(scores_of(10, {{3, 0.119f}}), 10).empty());
  EXPECT_EQ(hot.after_step(scores_of(10, {{3, 0.121f}}), 10), (std::vector<Move>{{kCopy, 3}}));
  EXPECT_EQ(hot.counters(), (HotPages::Counters{1, 1, 0}));
}

TEST(HotPages, ImportanceDecaysUnlessItIsRenewed) {
  HotPages hot(settings_of(0));
  hot.after_step(scores_of(2, {{1, 0.5f}}), 2);
  for (int i = 0; i < 3; ++i) hot.after_step(scores_of(2, {}), 2);
  EXPECT_FLOAT_EQ(hot.pages()[1].importance, 0.5f * 0.92f * 0.92f * 0.92f);
  hot.after_step(scores_of(2, {{1, 0.1f}}), 2);
  EXPECT_FLOAT_EQ(hot.pages()[1].importance, 0.5f * 0.92f * 0.92f * 0.92f * 0.92f);
  hot.after_step(scores_of(2, {{1, 0.6f}}), 2);
  EXPECT_FLOAT_EQ(hot.pages()[1].importance, 0.6f);
}

// Scores of pages that are not coded to their last row are remembered, but there is nothing to copy yet.
TEST(HotPages, APartialPageWaits) {
  HotPages hot(settings_of(4));
  EXPECT_TRUE(hot.after_step(scores_of(5, {{4, 0.9f}}), 4).empty());
  EXPECT_EQ(hot.after_step(scores_of(6, {}), 5), (std::vector<Move>{{kCopy, 4}}));
}

TEST(HotPages, MostImportantFirstAndNoMoreThanSwaps) {
  HotPageSettings settings = settings_of(16);
  settings.swaps = 2;
  HotPages hot(settings);
  const auto scores = scores_of(9, {{1, 0.2f}, {2, 0.4f}, {5, 0.3f}, {8, 0.4f}, {7, 0.25f}});
  EXPECT_EQ(hot.after_step(scores, 9), (std::vector<Move>{{kCopy, 2}, {kCopy, 8}}));
  EXPECT_EQ(hot.after_step(scores_of(9, {}), 9), (std::vector<Move>{{kCopy, 5}, {kCopy, 7}}));
  EXPECT_EQ(hot.after_step(scores_of(9, {}), 9), (std::vector<Move>{{kCopy, 1}}));
}

// The idle one goes, and only for a page that has more.
TEST(HotPages, TheLeastImportantMakesRoom) {
  HotPages hot(settings_of(2));
  hot.after_step(scores_of(9, {{1, 0.5f}, {2, 0.4f}}), 9);
  EXPECT_TRUE(hot.after_step(scores_of(9, {{3, 0.2f}}), 9).empty());
  EXPECT_EQ(hot.after_step(scores_of(9, {{3, 0.6f}}), 9), (std::vector<Move>{{kForget, 2}, {kCopy, 3}}));
  EXPECT_EQ(hot.counters(), (HotPages::Counters{3, 3, 1}));
}

TEST(HotPages, HitsMakeSticky) {
  HotPages hot(settings_of(1));
  hot.after_step(scores_of(4, {{1, 0.2f}}), 4);
  EXPECT_FALSE(hot.pages()[1].sticky);
  hot.after_step(scores_of(4, {{1, 0.2f}}), 4);
  EXPECT_TRUE(hot.pages()[1].sticky);
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(hot.after_step(scores_of(4, {{2, 0.9f}}), 4).empty());
  EXPECT_TRUE(hot.pages()[1].resident);
}

// A page that comes and goes is not copied for ever.
TEST(HotPages, ComingAndGoingMakesSticky) {
  HotPages hot(settings_of(1));
  size_t n_moves = 0;
  for (size_t i = 0; i < 50; ++i) {
    n_moves += hot.after_step(scores_of(4, {{i % 2, 0.2f + 0.1f * static_cast<float>(i)}}), 4).size();
  }
  EXPECT_LE(n_moves, 5u);
  EXPECT_EQ(hot.n_sticky_pages(), 1u);
}

// Stickiness is for ever, so a part of the room is kept from it: later pages can always come.
TEST(HotPages, AQuarterOfTheRoomNeverSticks) {
  HotPages hot(settings_of(8));
  std::vector<float> liked(20, 0.0f);
  std::fill_n(liked.begin(), 8, 0.5f);
  for (int step = 0; step < 20; ++step) hot.after_step(liked, 20);
  EXPECT_EQ(hot.n_sticky_pages(), 6u);
  for (int step = 0; step < 40; ++step) hot.after_step(scores_of(20, {}), 20);
  EXPECT_EQ(hot.after_step(scores_of(20, {{15, 0.9f}}), 20).back(), (Move{kCopy, 15}));
  EXPECT_TRUE(hot.pages()[15].resident);
}

TEST(HotPages, PromotionCanBeSwitchedOff) {
  HotPageSettings settings = settings_of(4);
  settings.promote = 1;
  HotPages hot(settings);
  EXPECT_TRUE(hot.after_step(scores_of(4, {{1, 8.0f}}), 4).empty());
  settings.promote = 0;
  EXPECT_EQ(HotPages(settings).after_step(scores_of(4, {{1, 1e-6f}}), 4), (std::vector<Move>{{kCopy, 1}}));
}

// The published code lets scattered tokens pin so many pages that no slot is left.
TEST(HotPages, WhatAPromptLikesStaysButTakesHalfOfTheRoom) {
  HotPages hot(settings_of(6));
  std::vector<float> scores(16 * 20, 0.0f);
  for (size_t page = 0; page < 20; ++page) scores[16 * page + 5] = 0.001f * static_cast<float>(page + 1);
  EXPECT_EQ(hot.after_prompt(scores, 18), (std::vector<Move>{{kCopy, 17}, {kCopy, 16}, {kCopy, 15}}));
  EXPECT_EQ(hot.n_sticky_pages(), 3u);
  EXPECT_EQ(hot.counters(), (HotPages::Counters{0, 3, 0}));
  for (size_t i = 0; i < 30; ++i)
    hot.after_step(scores_of(20, {{i % 15, 0.5f + 0.1f * static_cast<float>(i)}}), 18);
  for (const size_t page : {15, 16, 17}) EXPECT_TRUE(hot.pages()[page].resident);
  EXPECT_EQ(n_resident(hot), 6u);
}

// Sinks are exact anyway.
TEST(HotPages, SinksAreNotChosen) {
  HotPageSettings settings = settings_of(6);
  settings.sink_tokens = 4;
  settings.initial_sticky = 1;
  HotPages hot(settings);
  std::vector<float> scores(64, 0.0f);
  scores[2] = 5.0f;
  scores[40] = 0.01f;
  EXPECT_EQ(hot.after_prompt(scores, 4), (std::vector<Move>{{kCopy, 2}}));
}

// The next prompt says anew what it likes; what it shares with the last one is not copied twice.
TEST(HotPages, TheNextPromptChoosesAnew) {
  HotPageSettings settings = settings_of(4);
  settings.initial_sticky = 2;
  HotPages hot(settings);
  std::vector<float> scores(16 * 8, 0.0f);
  scores[16 * 1] = scores[16 * 2] = 0.01f;
  hot.after_prompt(scores, 8);
  scores[16 * 1] = 0;
  scores[16 * 5] = 0.01f;
  EXPECT_EQ(hot.after_prompt(scores, 8), (std::vector<Move>{{kCopy, 5}}));
  EXPECT_TRUE(hot.pages()[1].resident);
  EXPECT_FALSE(hot.pages()[1].stays());
  EXPECT_TRUE(hot.pages()[2].initial);
}

TEST(HotPages, SmallSizes) {
  for (const size_t n : {0, 1, 15, 16, 17, 63, 64, 65}) {
    for (const size_t page_tokens : {1, 10, 16, 64}) {
      HotPageSettings settings = settings_of(2);
      settings.page_tokens = page_tokens;
      HotPages hot(settings);
      for (const Move& move : hot.after_prompt(std::vector<float>(n, 0.5f), n / page_tokens)) {
        EXPECT_LT(move.page, n / page_tokens);
      }
    }
  }
}

// Laws over random attention: never more copies than fit, sticky ones among them; a move only where it
// changes something; the same for the same scores.
TEST(HotPages, RandomAttention) {
  for (uint64_t seed = 0; seed < 30; ++seed) {
    test::Random random(seed);
    HotPageSettings settings = settings_of(random.below(9));
    settings.sticky = random.below(5);
    settings.swaps = 1 + random.below(4);
    HotPages hot(settings);
    HotPages twin(settings);
    std::vector<bool> resident(300, false);
    size_t n_ins = 0;
    for (size_t step = 0; step < 200; ++step) {
      const size_t n_cold = 40 + step / 2;
      const bool prompt = random.below(50) == 0;
      std::vector<float> scores(prompt ? 16 * n_cold : n_cold + 1);
      for (float& x : scores) x = static_cast<float>(std::pow(random.unit(), 20));
      const auto moves = prompt ? hot.after_prompt(scores, n_cold) : hot.after_step(scores, n_cold);
      ASSERT_EQ(moves, prompt ? twin.after_prompt(scores, n_cold) : twin.after_step(scores, n_cold));
      size_t n_now = 0;
      for (const Move& move : moves) {
        ASSERT_LT(move.page, n_cold);
        ASSERT_NE(resident[move.page], move.kind == kCopy);
        ASSERT_FALSE(move.kind == kForget && hot.pages()[move.page].stays());
        resident[move.page] = move.kind == kCopy;
        n_now += move.kind == kCopy;
        ASSERT_LE(std::count(resident.begin(), resident.end(), true),
                  static_cast<ptrdiff_t>(settings.capacity_pages));
      }
      n_ins += n_now;
      ASSERT_LE(n_now, prompt ? settings.swaps + settings.capacity_pages : settings.swaps);
      ASSERT_EQ(hot.counters().page_ins, n_ins);
      ASSERT_LE(hot.n_sticky_pages(), n_resident(hot));
      for (size_t page = 0; page < hot.pages().size(); ++page) {
        ASSERT_EQ(hot.pages()[page].resident, resident[page]);
        ASSERT_LE(hot.pages()[page].stays(), hot.pages()[page].resident);
      }
    }
  }
}

}  // namespace
}  // namespace quire
