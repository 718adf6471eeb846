#include "study/bench_modes.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace quire {
namespace {

TEST(MonarchRecipeText, SaysEveryFlag) {
  EXPECT_EQ(monarch_recipe_text({}),
            "monarch(window=512,max_hot=768,page=16,promote=0.12,sticky=2,decay=0.92,initial_sticky=16)");
  const MonarchFlags flags = {.window_size = 64,
                              .max_hot_tokens = 96,
                              .page_size = 32,
                              .promotion_threshold = 0.15,
                              .sticky_threshold = 3,
                              .importance_decay = 1,
                              .initial_sticky_tokens = 0};
  EXPECT_EQ(monarch_recipe_text(flags),
            "monarch(window=64,max_hot=96,page=32,promote=0.15,sticky=3,decay=1,initial_sticky=0)");
}

std::vector<std::string> modes_of(const char* text) {
  std::vector<std::string> modes;
  for (const BenchEntry& entry : parse_bench_modes(text, {})) modes.push_back(entry.mode);
  return modes;
}

TEST(ParseBenchModes, KeepsOrderAndRepetitions) {
  using Modes = std::vector<std::string>;
  EXPECT_EQ(modes_of("standard"), Modes{"standard"});
  EXPECT_EQ(modes_of("turbo4, standard ,full"), (Modes{"turbo4", "standard", "full"}));
  EXPECT_EQ(modes_of("full,full"), (Modes{"full", "full"}));
}

TEST(ParseBenchModes, RecipesOfSeveralParts) {
  const auto entries =
      parse_bench_modes("quire(budget=64,dense=2),standard,k=turbo4,v=turbo3,tail=128,q8", {});
  ASSERT_EQ(entries.size(), 4u);
  EXPECT_EQ(entries[0].recipe, Recipe::parse("quire(budget=64,dense=2)"));
  EXPECT_EQ(entries[1].recipe, Recipe{});
  EXPECT_EQ(entries[2].recipe, Recipe::parse("k=turbo4,v=turbo3,tail=128"));
  EXPECT_EQ(entries[3].mode, "q8");
}

TEST(ParseBenchModes, RefusesNonsense) {
  for (const char* text : {"", "full,", ",full", "full,,q8", "standrad", "quire(budget=64", "full)x"}) {
    EXPECT_THROW(parse_bench_modes(text, {}), Error) << text;
  }
}

}  // namespace
}  // namespace quire
