// Caches that code what leaves a log-sparse reserve.
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "base/error.h"
#include "property/keep/scene.h"

namespace quire {

// The coded bytes of every layer.
class CachePages {
 public:
  static std::vector<std::vector<std::byte>> sealed_bytes(const Cache& cache) {
    std::vector<std::vector<std::byte>> layers;
    for (size_t layer = 0; layer < cache.store_.n_layers(); ++layer) {
      const LayerView view = cache.store_.view(layer, cache.n_tokens());
      std::vector<std::byte>& bytes = layers.emplace_back();
      for (size_t page = 0; page < view.n_sealed(); ++page) {
        bytes.insert(bytes.end(), view.pages[page]->data,
                     view.pages[page]->data + view.pages[page]->size_bytes);
      }
    }
    return layers;
  }
};

namespace test {
namespace {

const char* const kRecipes[] = {
    "logquant(reserve=48)",
    "k=kivi2,v=kivi2,keep=log(reserve=64,rule=strided)",
    "turbo2(keep=log(reserve=96),frame=rotated)",
    "k=turbo4,v=f16,keep=log(reserve=30),sink=2,frame=rotated",
};

// Values tell positions, and a query of zeros weighs all rows alike: no token is lost or there twice, coded
// or not. Values are exact on both sides.
TEST(Reserving, EveryTokenIsThereOnce) {
  Prompt prompt(geometry(2, 64, {1, 1}), 700, 1);
  for (size_t layer = 0; layer < 2; ++layer) {
    std::fill(prompt.q[layer].begin(), prompt.q[layer].end(), 0.0f);
    for (size_t t = 0; t < 700; ++t) {
      for (size_t d = 0; d < 64; ++d) prompt.v[layer][t * 64 + d] = static_cast<float>(t * (d + 1));
    }
  }
  for (const std::string rule : {"published", "strided"}) {
    for (const size_t step : {1, 7, 64, 700}) {
      Keeper keeper(prompt, "k=kivi4,v=f32,keep=log(reserve=50,rule=" + rule + "),sink=3");
      keeper.grow(prompt, 700, step);
      ASSERT_GE(keeper.cache.store().view(0, 700).n_sealed(), 9u);
      for (size_t t = 0; t < 700; ++t) {
        for (const size_t d : {0, 63}) {
          const double wanted = static_cast<double>(t) / 2 * static_cast<double>(d + 1);
          ASSERT_NEAR(keeper.out[1][t * 128 + d], wanted, 1e-3 * (wanted + 1))
              << rule << " " << step << " " << t;
        }
      }
    }
  }
}

// The reserve is exact: a key that only one reserved token has finds that token's value to the bit of f16.
// The same key on a token that has settled is coded.
TEST(Reserving, WhatIsReservedIsExact) {
  const size_t n = 400, dim = 64;
  const LogReserve reserve(ReserveRule::kPublished, 48, 0);
  LogReserveState state(reserve);
  std::vector<uint32_t> settled;
  state.append(n, settled);
  const std::set<uint32_t> reserved(state.reserved().begin(), state.reserved().end());
  const size_t n_coded = settled.size() / 64 * 64;
  Prompt prompt(geometry(1, dim, {1}), n + 1, 2);
  size_t n_checked = 0;
  for (uint32_t t = 0; t < n; t += 3) {
    Prompt asked = prompt;
    for (size_t d = 0; d < dim; ++d) asked.q[0][n * dim + d] = 4 * prompt.k[0][t * dim + d];
    Keeper keeper(asked, "logquant(reserve=48)");
    keeper.grow(asked, n, 80);
    keeper.grow(asked, n + 1, 1);
    double worst = 0;
    for (size_t d = 0; d < dim; ++d) {
      worst =
          std::max(worst, std::fabs(double{keeper.out[0][n * dim + d]} - double{prompt.v[0][t * dim + d]}));
    }
    const auto coded_end = settled.begin() + static_cast<ptrdiff_t>(n_coded);
    const bool coded = std::find(settled.begin(), coded_end, t) != coded_end;
    EXPECT_EQ(reserved.count(t) > 0 || std::find(coded_end, settled.end(), t) != settled.end(), !coded);
    if (coded) {
      EXPECT_GT(worst, 0.02) << t;
    } else {
      EXPECT_LT(worst, 0.003) << t;
      ++n_checked;
    }
  }
  EXPECT_GT(n_checked, 10u);
}

// Nothing is ever coded again: pages stay as they are when the cache grows, and hang on no step size.
TEST(Reserving, BytesHangOnNoStepSizeAndStay) {
  const Prompt prompt(geometry(4, 64, {2, 1}), 900, 3);
  for (const char* recipe : kRecipes) {
    Keeper once(prompt, recipe);
    once.grow(prompt, 900, 900);
    const auto wanted = CachePages::sealed_bytes(once.cache);
    for (const size_t step : {1, 7, 64}) {
      Keeper keeper(prompt, recipe);
      std::vector<std::vector<std::byte>> before(2);
      while (keeper.cache.n_tokens() < 900) {
        keeper.grow(prompt, std::min<size_t>(900, keeper.cache.n_tokens() + 100), step);
        const auto now = CachePages::sealed_bytes(keeper.cache);
        for (size_t layer = 0; layer < 2; ++layer) {
          ASSERT_GE(now[layer].size(), before[layer].size());
          ASSERT_TRUE(std::equal(before[layer].begin(), before[layer].end(), now[layer].begin())) << recipe;
        }
        before = now;
      }
      EXPECT_EQ(before, wanted) << recipe << " " << step;
    }
  }
}

TEST(Reserving, ForksThreadsAndCuts) {
  const Prompt prompt(geometry(6, 64, {3, 2}), 600, 4);
  for (const char* recipe : kRecipes) {
    Keeper alone(prompt, recipe);
    alone.grow(prompt, 300, 300);
    alone.grow(prompt, 600, 1);
    Keeper origin(prompt, recipe, 2);
    origin.grow(prompt, 300, 300);
    origin.grow(prompt, 310, 1);
    Cache fork = origin.cache.fork();
    origin.grow(prompt, 600, 1);
    EXPECT_EQ(origin.out, alone.out) << recipe;
    Outputs out = alone.out;
    Team team(1);
    while (fork.n_tokens() < 600) run_step(fork, prompt, fork.n_tokens(), fork.n_tokens() + 1, 1, team, out);
    EXPECT_EQ(out, alone.out) << recipe;
    EXPECT_THROW(fork.crop(599), Error);
    fork.crop(0);
    Outputs again = empty_outputs(prompt);
    run_step(fork, prompt, 0, 300, 300, team, again);
    while (fork.n_tokens() < 600)
      run_step(fork, prompt, fork.n_tokens(), fork.n_tokens() + 1, 1, team, again);
    EXPECT_EQ(again, alone.out) << recipe;
    // Before anything is coded a cut is possible.
    Keeper cut(prompt, recipe);
    cut.grow(prompt, 29, 29);
    cut.cache.crop(11);
    cut.grow(prompt, 300, 289);
    cut.grow(prompt, 600, 1);
    for (size_t layer = 0; layer < 2; ++layer) {
      const auto decoded = static_cast<ptrdiff_t>(300 * prompt.q_width());
      EXPECT_TRUE(std::equal(cut.out[layer].begin() + decoded, cut.out[layer].end(),
                             alone.out[layer].begin() + decoded))
          << recipe;
    }
  }
}

TEST(Reserving, BytesAsPredicted) {
  const Prompt prompt(geometry(4, 64, {2, 2}), 1000, 5);
  for (const char* text : kRecipes) {
    const Recipe recipe = Recipe::parse(text);
    const uint64_t peak = prompt.shape.peak_bytes(recipe, 0, 1000, 0);
    PagePool pool(peak);
    Cache cache(recipe, prompt.shape, pool);
    Team team(1);
    Outputs out = empty_outputs(prompt);
    run_step(cache, prompt, 0, 900, 900, team, out);
    EXPECT_EQ(pool.used_bytes(), prompt.shape.cache_bytes(recipe, 900)) << text;
    while (cache.n_tokens() < 1000)
      run_step(cache, prompt, cache.n_tokens(), cache.n_tokens() + 1, 1, team, out);
    EXPECT_EQ(pool.used_bytes(), prompt.shape.cache_bytes(recipe, 1000)) << text;
  }
}

}  // namespace
}  // namespace test
}  // namespace quire
