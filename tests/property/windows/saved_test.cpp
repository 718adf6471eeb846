// Caches of models with windows as files: the same attention afterwards, bit for bit; files of other windows
// and damaged ones are refused.
#include <gtest/gtest.h>

#include <cstring>

#include "cache/geometry_file.h"
#include "property/cache/saved.h"
#include "property/keep/scene.h"
#include "property/rapid.h"
#include "property/windows/scene.h"

namespace quire::test {
namespace {

const char* const kSavedRecipes[] = {"full",
                                     "k=bf16,v=f32",
                                     "turbo4(frame=rotated,tail=20)",
                                     "h2o(budget=60)",
                                     "streaming(window=50)",
                                     "k=turbo4,v=turbo4,frame=rotated,keep=log(reserve=48)",
                                     "quest(budget=60,dense=0)"};

void check(uint64_t seed) {
  Random random(seed);
  const std::string recipe = kSavedRecipes[random.below(std::size(kSavedRecipes))];
  const bool all =
      !recipe.starts_with("full") && !recipe.starts_with("k=bf16") ? false : random.below(3) == 0;
  const Prompt prompt(windowed(geometry(4, 40, {2, 1, 2}), {1 + random.below(150), all ? 9u : 0u, 40},
                               random.below(2) == 0 ? 0.0f : 5.0f),
                      1 + random.below(280), seed);
  Keeper keeper(prompt, recipe);
  Keeper other(prompt, recipe);
  grow(keeper.cache, prompt, random.below(prompt.n_tokens + 1), random, keeper.team, keeper.out);
  const size_t least = keeper.cache.fixed_tokens();
  if (random.below(2) == 0 && least <= keeper.cache.n_tokens())
    keeper.cache.crop(least + random.below(keeper.cache.n_tokens() - least + 1));
  const Bytes bytes = save(keeper.cache);
  RC_ASSERT(load(bytes, other.cache) == "");
  RC_ASSERT(other.cache.n_tokens() == keeper.cache.n_tokens());
  RC_ASSERT(other.cache.fixed_tokens() == keeper.cache.fixed_tokens());
  RC_ASSERT(other.cache.size_bytes() == keeper.cache.size_bytes());
  RC_ASSERT(save(other.cache) == bytes);
  keeper.out = empty_outputs(prompt);
  Random steps = random;
  grow(keeper.cache, prompt, prompt.n_tokens, random, keeper.team, keeper.out);
  grow(other.cache, prompt, prompt.n_tokens, steps, other.team, other.out);
  for (size_t layer = 0; layer < keeper.out.size(); ++layer) {
    RC_ASSERT(std::memcmp(keeper.out[layer].data(), other.out[layer].data(),
                          keeper.out[layer].size() * sizeof(float)) == 0);
  }
  RC_ASSERT(save(other.cache) == save(keeper.cache));
}

TEST(SavedWindows, GiveTheSameAttention) {
  EXPECT_TRUE(rc::check([] { check(*rc::gen::arbitrary<uint64_t>()); }));
}

struct Saved {
  explicit Saved(const Geometry& shape, size_t n = 300) : prompt(shape, n, 1), keeper(prompt, "full") {
    keeper.grow(prompt, n, n);
  }
  Prompt prompt;
  Keeper keeper;
};

TEST(SavedWindows, OfAnotherGeometryAreRefused) {
  const Geometry shape = windowed(geometry(4, 40, {2, 1}), {50, 0}, 30);
  const Saved saved(shape);
  const Bytes bytes = save(saved.keeper.cache);
  for (const Geometry& other :
       {windowed(shape, {51, 0}, 30), windowed(shape, {0, 50}, 30), windowed(shape, {50, 0}, 31),
        windowed(shape, {}, 30), windowed(shape, {50, 0}), windowed(shape, {})}) {
    PagePool pool;
    Cache cache(Recipe{}, other, pool);
    EXPECT_NE(load(bytes, cache).find("windows"), std::string::npos);
    EXPECT_EQ(cache.n_tokens(), 0u);
  }
  // And files of models without either are what they were.
  const Saved plain(geometry(4, 40, {2, 1}));
  EXPECT_EQ(geometry_values(plain.prompt.shape), (std::vector<uint32_t>{2, 4, 40, 2, 1}));
  PagePool pool;
  Cache cache(Recipe{}, shape, pool);
  EXPECT_NE(load(save(plain.keeper.cache), cache), "");
}

TEST(SavedWindows, DamagedOnesAreRefused) {
  const Saved saved(windowed(geometry(4, 40, {2, 1}), {50, 0}));
  const Cache& cache = saved.keeper.cache;
  const auto rows = [&](size_t at, uint64_t value) {
    return changed<uint64_t>(cache, "rows", [&](std::vector<uint64_t>& values) { values[at] = value; });
  };
  EXPECT_EQ(refusal(rows(1, 3)), "");  // 250 tokens are behind the window: three pages
  for (const uint64_t n : {uint64_t{0}, uint64_t{2}, uint64_t{4}, uint64_t{5}, uint64_t{1} << 62}) {
    EXPECT_TRUE(is_refused_for("rows", rows(1, n))) << n;
  }
  EXPECT_TRUE(is_refused_for("rows", rows(2, 1)));
  EXPECT_NE(refusal(rows(0, 400)), "");
  EXPECT_NE(refusal(rows(0, uint64_t{1} << 60)), "");
  const auto shape = [&](size_t at, uint32_t value) {
    return changed<uint32_t>(cache, "geometry", [&](std::vector<uint32_t>& values) { values[at] = value; });
  };
  EXPECT_TRUE(is_refused_for("geometry", shape(5, 0xffffffff)));
  EXPECT_TRUE(is_refused_for("geometry", shape(7, 0x7fc00000)));  // NaN
  EXPECT_TRUE(is_refused_for("geometry", shape(7, 0xbf800000)));  // -1
  const Bytes longer =
      changed<uint32_t>(cache, "geometry", [](std::vector<uint32_t>& values) { values.push_back(0); });
  EXPECT_TRUE(is_refused_for("geometry", longer));
  const Saved all(windowed(geometry(4, 40, {2}), {50}));
  const Bytes endless = changed<uint64_t>(all.keeper.cache, "rows", [](std::vector<uint64_t>& values) {
    values[0] = uint64_t{1} << 40;
    values[1] = (values[0] - 50) / 64;
  });
  EXPECT_TRUE(is_refused_for("rows", endless));
}

}  // namespace
}  // namespace quire::test
