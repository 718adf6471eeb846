// Who watches a cache is told of every row that a step of one token reads, once, whatever made it read them.
#include <gtest/gtest.h>

#include "property/select/butler_scene.h"

namespace quire::test {
namespace {

constexpr const char* kRecipes[] = {
    "full",
    "turbo4(frame=rotated)",
    "quest(budget=80,dense=1)",
    "random(budget=80)",
    "k=q8,v=q8,frame=plain,select=oracle(budget=80)",
    "nested4(frame=rotated,tail=20,select=sign(budget=60,dense=1))",
    "nested4(frame=rotated,tail=20,select=sign(mass=0.8))",
    "selfindex(budget=70,full_rows=16)",
    "streaming(window=90)",
    "h2o(budget=70)",
    "snapkv(budget=70)",
    "k=f16,v=f16,keep=log(reserve=60)",
    "turbo2(frame=rotated,keep=log(reserve=60))",
};

TEST(ReadRows, AreToldOnceEach) {
  const Prompt prompt(geometry(4, 64, {2, 1}), 390, 3);
  for (const char* text : kRecipes) {
    auto frequencies = std::make_shared<RopeFrequencies>(32, 0.1);
    PagePool pool;
    Cache cache(Recipe::parse(text), prompt.shape, pool, {.rope_frequencies = frequencies});
    Team team(2);
    Outputs out = empty_outputs(prompt);
    run_step(cache, prompt, 0, 385, 385, team, out);
    for (size_t n = 385; n < 390; ++n) {
      Reads reads;
      cache.observe_reads(&reads);
      run_step(cache, prompt, n, n + 1, 1, team, out);
      ASSERT_EQ(reads.rows.size(), 3u) << text;
      uint64_t n_rows = 0;
      for (const auto& [place, rows] : reads.rows) {
        n_rows += rows.size();
        EXPECT_LE(*rows.rbegin(), n) << text;
        // The oracle leaves a token's own row out where others count more.
        EXPECT_TRUE(rows.contains(n) || std::string(text).find("oracle") != std::string::npos) << text;
      }
      EXPECT_EQ(n_rows, cache.last_step().rows_read) << text;
      EXPECT_EQ(reads.n_named, 0u);
    }
    // Nobody is told of longer steps, or when it does not watch any more.
    Reads reads;
    cache.observe_reads(&reads);
    if (cache.coded_tokens() == 0) {
      cache.crop(380);
      run_step(cache, prompt, 380, 390, 10, team, out);
    }
    cache.observe_reads(nullptr);
    EXPECT_TRUE(reads.rows.empty()) << text;
  }
}

}  // namespace
}  // namespace quire::test
