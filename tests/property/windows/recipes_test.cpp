// Models of layers with a window and layers without: the former keep their window exactly whatever the
// recipe, the latter do as they would alone. What cannot be had is refused by name.
#include <gtest/gtest.h>

#include "base/error.h"
#include "property/keep/scene.h"
#include "property/windows/scene.h"

namespace quire::test {
namespace {

// Recipes by which layers do not look at each other.
const char* const kRecipes[] = {"full",
                                "k=bf16,v=f32",
                                "turbo4(frame=rotated)",
                                "k=q8,v=kivi2,frame=plain,sink=3,tail=30",
                                "kivi4",
                                "polar4r(frame=rotated)",
                                "quire(budget=40,frame=rotated)",
                                "quire(mass=0.8,frame=rotated)",
                                "selfindex(budget=50)",
                                "h2o(budget=90)",
                                "snapkv(budget=80)",
                                "keyformer(budget=70)",
                                "streaming(window=60)",
                                "k=turbo4,v=turbo4,frame=rotated,keep=log(reserve=48)",
                                "k=turbo4,v=turbo4,frame=rotated,keep=log(reserve=48,partial=on)",
                                "quest(budget=60,dense=0)",
                                "doublesparse(budget=60,from=prompt,dense=0)",
                                "oracle(budget=50,dense=0)",
                                "random(budget=60)",
                                "k=turbo4,v=turbo4,frame=rotated,select=oracle(budget=60,dense=0)",
                                "full,place=host",
                                "turbo4(frame=rotated),place=host",
                                "quest(budget=60,dense=0),place=host"};

Geometry five_to_one(float softcap = 0) {
  return windowed(geometry(4, 64, {2, 2, 2, 2, 2, 2}), {50, 50, 50, 50, 50, 0}, softcap);
}

Outputs run(const Prompt& prompt, const std::string& recipe, size_t prefill, int n_threads) {
  Keeper keeper(prompt, recipe, n_threads);
  keeper.grow(prompt, prefill, prefill);
  keeper.grow(prompt, prompt.n_tokens, 1);
  return keeper.out;
}

TEST(WindowRecipes, EveryLayerDoesAsItWouldAlone) {
  const Prompt prompt(five_to_one(), 655, 1);
  Prompt plain = prompt;
  plain.shape.window_tokens.clear();
  const Outputs full = run(prompt, "full", 640, 1);
  for (const std::string recipe : kRecipes) {
    const bool exact_f16 = recipe != "k=bf16,v=f32";
    const Outputs out =
        run(prompt, recipe, 640, recipe.starts_with("h2o") || recipe.starts_with("quire") ? 2 : 1);
    const Outputs alone = run(plain, recipe, 640, 1);
    const Outputs other = exact_f16 ? Outputs{} : run(prompt, recipe, 640, 1);
    const Outputs& windows = exact_f16 ? full : other;
    ASSERT_EQ(out[5], alone[5]) << recipe;
    for (size_t layer = 0; layer < 5; ++layer)
      ASSERT_EQ(out[layer], windows[layer]) << recipe << " layer " << layer;
  }
  const Outputs exact = run(prompt, "f32", 640, 1);
  for (size_t layer = 0; layer < 6; ++layer) ASSERT_LE(largest_error(prompt, exact, layer, 31), 1e-5);
}

// monarch weighs all layers' attention together: of its layers without a window.
TEST(WindowRecipes, PromotionWatchesTheLayersThatSeeEverything) {
  const std::string recipe = "monarch(window=64,max_hot=192,frame=rotated)";
  const Prompt prompt(windowed(geometry(4, 64, {2, 2, 2, 2}), {50, 0, 50, 0}), 700, 2);
  const Outputs out = run(prompt, recipe, 640, 1);
  const Outputs windows = run(prompt, "full", 640, 1);
  ASSERT_EQ(out[0], windows[0]);
  ASSERT_EQ(out[2], windows[2]);
  Keeper keeper(prompt, recipe);
  keeper.grow(prompt, 640, 640);
  keeper.grow(prompt, 700, 1);
  ASSERT_EQ(keeper.out, out);
  const Residency residency = keeper.cache.residency();
  EXPECT_EQ(residency.total_tokens, 700u);
  EXPECT_EQ(residency.hot_tokens + residency.cold_tokens + residency.dropped_tokens, 700u);
  EXPECT_GT(residency.cold_tokens, 0u);
  EXPECT_EQ(residency.dropped_tokens, 0u);
}

// Bytes: of the windows exact pages, of the others what the recipe takes.
TEST(WindowRecipes, BytesFollowFromTheShape) {
  const Prompt prompt(five_to_one(), 700, 3);
  for (const char* recipe : {"turbo4(frame=rotated)", "quire(frame=rotated)", "h2o(budget=90)",
                             "streaming(window=60)", "quest(budget=60,dense=0)"}) {
    for (const size_t step : {1, 90, 700}) {
      Keeper keeper(prompt, recipe);
      keeper.grow(prompt, 700, step);
      const Geometry& shape = prompt.shape;
      Geometry one = shape;
      one.n_layers = 1;
      one.n_kv_heads = {2};
      one.window_tokens = {50};
      const uint64_t window_bytes = one.cache_bytes(Recipe{}, 700);
      EXPECT_EQ(window_bytes, 2 * 64 * 64 * 2 * 2u);  // a page of two heads: 60 rows
      EXPECT_EQ(keeper.cache.store().size_bytes(), shape.cache_bytes(Recipe::parse(recipe), 700))
          << recipe << " " << step;
      EXPECT_LE(keeper.pool.account().peak_bytes(), shape.peak_bytes(Recipe::parse(recipe), 0, 700, step))
          << recipe << " " << step;
    }
  }
}

std::string recipe_refusal(const Recipe& recipe, const Geometry& shape, ModelFacts facts = {}) {
  try {
    PagePool pool;
    Cache cache(recipe, shape, pool, std::move(facts));
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

TEST(WindowRecipes, RefusedByNameWhereNothingIsLeftToThem) {
  const Geometry shape = windowed(geometry(4, 64, {2, 2}), {50, 40});
  for (const char* text :
       {"turbo4(frame=rotated)", "h2o(budget=90)", "quest(budget=60)", "full,place=host"}) {
    const Recipe recipe = Recipe::parse(text);
    const std::string error = recipe_refusal(recipe, shape);
    EXPECT_NE(error.find(recipe.text()), std::string::npos) << error;
    EXPECT_NE(error.find("layer 0"), std::string::npos) << error;
    EXPECT_EQ(error.find('\n'), std::string::npos);
    EXPECT_THROW(check_windows(recipe, shape), Error);
    EXPECT_NO_THROW(check_windows(recipe, windowed(geometry(4, 64, {2, 2}), {50, 0})));
  }
  EXPECT_EQ(recipe_refusal(Recipe::parse("full"), shape), "");
  EXPECT_EQ(recipe_refusal(Recipe::parse("bf16"), shape), "");
  const Recipe butler = Recipe::parse("butler(budget=5%)");
  try {
    check_windows(butler, windowed(geometry(4, 64, {2, 2}), {0, 50}));
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("layer 1"), std::string::npos) << error.what();
  }
  EXPECT_NO_THROW(check_windows(butler, geometry(4, 64, {2, 2})));
}

}  // namespace
}  // namespace quire::test
