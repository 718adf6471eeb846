// Law 6 where rows are kept and pages are coded late: bytes reported are bytes allocated, and a peak said in
// advance is enough, and no byte less.
#include <gtest/gtest.h>

#include "base/error.h"
#include "property/statistics/scene.h"

namespace quire::test {
namespace {

const char* const kCountedRecipes[] = {"selfindex", "selfindex(full_rows=5,sink=7,tail=100)", "signvq",
                                       "turbo4(stats=prompt,full_rows=64)", "quire(stats=prompt)"};

Prompt bytes_prompt(size_t n) { return Prompt(geometry(4, 40, {2, 1, 4}), n, n); }

TEST(StatisticsBytes, AreThoseAllocated) {
  for (const char* text : kCountedRecipes) {
    const Recipe recipe = Recipe::parse(text);
    for (const size_t n : {100, 511, 512, 513, 576, 640, 900}) {
      const Prompt prompt = bytes_prompt(n);
      for (const size_t step : {n, size_t{100}}) {
        Grown grown(prompt, recipe, n, step);
        EXPECT_EQ(grown.cache.size_bytes(), prompt.shape.cache_bytes(recipe, n))
            << text << " " << n << " " << step;
        // Statistics lie beside the pages.
        EXPECT_EQ(grown.pool.used_bytes() + grown.cache.statistics_bytes(), grown.cache.size_bytes())
            << text << " " << n << " " << step;
        EXPECT_EQ(grown.cache.statistics_bytes() > 0, grown.cache.store().view(0, n).n_sealed() > 0) << text;
      }
    }
  }
}

// A page of kept rows a layer, which takes 64 rows however many there are.
TEST(StatisticsBytes, OfKeptRowsAreAPage) {
  const Prompt prompt = bytes_prompt(640);
  const Grown with(prompt, Recipe::parse("selfindex(full_rows=1)"), 640, 640);
  const Grown without(prompt, Recipe::parse("selfindex(full_rows=0)"), 640, 640);
  EXPECT_EQ(with.cache.size_bytes(), without.cache.size_bytes() + 7 * 64 * 40 * 2 * 2);
}

TEST(StatisticsBytes, APeakIsEnoughAndNoByteLess) {
  for (const char* text : kCountedRecipes) {
    const Recipe recipe = Recipe::parse(text);
    for (const size_t n : {512, 640}) {
      for (const size_t step : {n, size_t{64}, size_t{300}}) {
        const Prompt prompt = bytes_prompt(n);
        const uint64_t peak = prompt.shape.peak_bytes(recipe, 0, n, step);
        Grown enough(prompt, recipe, n, step, peak, 2);
        ASSERT_EQ(enough.cache.n_tokens(), n) << text;
        PagePool pool(peak - 1);
        Cache cache(recipe, prompt.shape, pool);
        Team team(1);
        Outputs out = empty_outputs(prompt);
        EXPECT_THROW(run_rest(cache, prompt, step, team, out), Error)
            << text << " " << n << " steps of " << step;
        EXPECT_EQ(pool.used_bytes(), cache.store().size_bytes()) << text << " " << n << " " << step;
      }
    }
  }
}

// What Self-Indexing publishes: 56 and 112 bytes a token and head of 64 and 128 values, keys and values, of
// which an eighth of a byte a value is the index.
TEST(StatisticsBytes, OfSignVqAreWhatIsPublished) {
  for (const auto& [dim, bytes] : {std::pair<int, int>{64, 56}, {128, 112}}) {
    EXPECT_EQ(key_page_bytes(Code::kSignVq, dim) + value_page_bytes(Code::kSignVq, dim), 64 * bytes);
    EXPECT_EQ(index_page_bytes(Code::kSignVq, dim), 64 * dim / 8);
    EXPECT_EQ(geometry(1, static_cast<size_t>(dim), {1}).token_bytes(Recipe::parse("selfindex")),
              static_cast<uint64_t>(bytes));
  }
}

// Law 7.
TEST(StatisticsBytes, OfAStepAreThoseOfItsRows) {
  const Prompt prompt(geometry(4, 64, {2}), 1200, 4);
  Grown grown(prompt, Recipe::parse("selfindex(budget=200)"), 1199, 1199);
  ASSERT_EQ(grown.cache.coded_tokens(), 1152u);
  grown.grow(prompt, 1200, 1);
  const StepStats& stats = grown.cache.last_step();
  EXPECT_EQ(stats.rows_read, 2u * 200);
  const size_t n_exact = 64 + 48;
  EXPECT_EQ(stats.bytes_read, 2 * (1152 * 8 + (200 - n_exact) * (24 + 24) + n_exact * 256));
}

}  // namespace
}  // namespace quire::test
