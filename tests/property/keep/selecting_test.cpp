// Rows that a predictor names among those of a reserve: they lie where the reserve has put them.
#include <gtest/gtest.h>

#include <cstring>
#include <set>
#include <string>

#include "cache/cache_file.h"
#include "property/select/butler_scene.h"

namespace quire::test {
namespace {

constexpr HeadShape kShape{4, 2, 40};
constexpr size_t kTokens = 470;
const std::string kReserve = "k=turbo4,v=turbo4,sink=4,frame=rotated,keep=log(reserve=96";

// Runs a prompt and then single tokens.
void run(Butler& butler) {
  butler.grow(330, 330);
  butler.grow(350, 20);
  butler.grow(kTokens, 1);
}

bool same_outputs(const Outputs& a, const Outputs& b) {
  for (size_t layer = 0; layer < a.size(); ++layer) {
    if (std::memcmp(a[layer].data(), b[layer].data(), a[layer].size() * sizeof(float)) != 0) return false;
  }
  return true;
}

TEST(SelectingReserve, AWholeBudgetIsTheReserveAlone) {
  const ButlerPrompt prompt(kShape, 4, kTokens, 3, 2);
  for (const char* partial : {")", ",partial=on)"}) {
    Butler alone(kReserve + partial, prompt);
    run(alone);
    for (const char* select : {"butler(budget=100%)", "oracle(budget=100%)", "random(budget=100%)"}) {
      Butler selecting(kReserve + partial + ",select=" + select, prompt, 2);
      run(selecting);
      EXPECT_TRUE(same_outputs(alone.out, selecting.out)) << partial << select;
    }
  }
}

// Of a token's step: sinks, the newest, and of all others those that are scored highest, by double precision.
void expect_highest(const ButlerPrompt& prompt, const Butler& butler, size_t layer, size_t head,
                    size_t n_rows) {
  constexpr size_t kSinks = 3, kLocal = 12;
  const size_t n = butler.cache.n_tokens();
  const std::set<size_t>& rows = butler.reads.rows.at({layer, head});
  ASSERT_EQ(rows.size(), n_rows) << n;
  auto scores = butler_scores(prompt, layer, head, n - 1, n - kLocal);
  std::vector<double> best(n - kLocal - kSinks, -INFINITY);
  for (const auto& own : scores) {
    for (size_t t = 0; t < best.size(); ++t) best[t] = std::max(best[t], own[t + kSinks]);
  }
  std::set<size_t> named;
  for (const size_t t : rows) {
    if (t >= kSinks && t < n - kLocal) named.insert(t - kSinks);
  }
  for (size_t t = 0; t < kSinks; ++t) ASSERT_TRUE(rows.contains(t));
  for (size_t t = n - kLocal; t < n; ++t) ASSERT_TRUE(rows.contains(t));
  ASSERT_TRUE(are_highest(named, best, n_rows - kSinks - kLocal, 0.2)) << layer << " " << head << " at " << n;
}

// Also after rows have changed places, which they do whenever a page is coded.
TEST(SelectingReserve, RowsAreNamedByTheirKeysWhereverTheyLie) {
  const ButlerPrompt prompt(kShape, 4, kTokens, 5, 2);
  for (const char* keep : {")", ",rule=strided)", ",partial=on)"}) {
    Butler butler(kReserve + keep + ",select=butler(budget=60,sink=3,local=12,heads=score)", prompt, 2);
    butler.grow(331, 330);
    butler.grow(332, 1);
    size_t n_checked = 0;
    while (butler.cache.n_tokens() < kTokens) {
      butler.step(1);
      if (butler.cache.n_tokens() % 7 != 0) continue;
      ++n_checked;
      for (size_t layer = 1; layer < 4; ++layer) {
        for (size_t head = 0; head < kShape.n_kv_heads; ++head) {
          ASSERT_NO_FATAL_FAILURE(expect_highest(prompt, butler, layer, head, 60)) << keep;
        }
      }
    }
    EXPECT_GT(n_checked, 10u);
  }
}

// What was named are places: when rows have moved it is named anew, and what is named between is read.
TEST(SelectingReserve, AnIntervalEndsWhereRowsMove) {
  const ButlerPrompt prompt(kShape, 4, kTokens, 6, 2);
  Butler every(kReserve + "),select=butler(budget=60,local=12)", prompt);
  Butler seldom(kReserve + "),select=butler(budget=60,local=12,interval=1000)", prompt);
  for (Butler* butler : {&every, &seldom}) butler->grow(332, 331);
  size_t n_named = 0, n_moves = 0, n_coded = seldom.cache.residency().cold_tokens;
  bool moved = true;  // the first step that selects names
  while (seldom.cache.n_tokens() < kTokens) {
    for (Butler* butler : {&every, &seldom}) butler->step(1);
    ASSERT_EQ(seldom.reads.n_named > 0, moved) << seldom.cache.n_tokens();
    if (moved) {
      ASSERT_EQ(every.reads.rows, seldom.reads.rows);
      ++n_named;
    }
    moved = seldom.cache.residency().cold_tokens != n_coded;
    n_coded = seldom.cache.residency().cold_tokens;
    n_moves += moved;
  }
  EXPECT_GE(n_moves, 2u);
  EXPECT_GE(n_named, 2u);
}

}  // namespace
}  // namespace quire::test
