#include "gpu/device_recipe.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "gpu/device_model.h"
#include "gpu/random_model.h"

namespace quire::test {
namespace {

using gpu::AttentionKind;

Recipe coded(Code keys, Code values) {
  Recipe recipe;
  recipe.coded = true;
  recipe.keys = SideFormat::of(keys);
  recipe.values = SideFormat::of(values);
  return recipe;
}

TEST(DeviceRecipeTest, NamesWhatKernelsThereAre) {
  EXPECT_EQ(gpu::device_recipe(Recipe(), "full").kind, AttentionKind::kExact);
  EXPECT_FALSE(gpu::device_recipe(Recipe(), "full").seals());
  const gpu::DeviceRecipe turbo = gpu::device_recipe(coded(Code::kTurbo4, Code::kTurbo3), "");
  EXPECT_EQ(turbo.kind, AttentionKind::kTurbo);
  EXPECT_EQ(turbo.key_bits, 4);
  EXPECT_EQ(turbo.value_bits, 3);
  EXPECT_EQ(turbo.tail_tokens, 64);
  EXPECT_EQ(turbo.sink_tokens, 4);
  EXPECT_EQ(gpu::device_recipe(coded(Code::kQ8, Code::kQ8), "").kind, AttentionKind::kPanels);
  Recipe quire = coded(Code::kNested4, Code::kNested3);
  quire.index = IndexBudget{};
  const gpu::DeviceRecipe sparse = gpu::device_recipe(quire, "quire");
  EXPECT_EQ(sparse.kind, AttentionKind::kSparse);
  EXPECT_EQ(sparse.budget.share, 0.075);
  EXPECT_EQ(sparse.budget.candidates, 1.5);
}

TEST(DeviceRecipeTest, SignVqIsReadByTheMeanQuery) {
  Recipe recipe = coded(Code::kSignVq, Code::kSignVq);
  recipe.sink_tokens = recipe.tail_tokens = 0;
  recipe.full_rows = 64;
  recipe.prompt_statistics = true;
  EXPECT_EQ(gpu::device_recipe(recipe, "").budget.share, 1);
  recipe.index = IndexBudget{.candidates = 1, .mean_query = true};
  const gpu::DeviceRecipe selfindex = gpu::device_recipe(recipe, "selfindex");
  EXPECT_EQ(selfindex.kind, AttentionKind::kSignVq);
  EXPECT_EQ(selfindex.full_rows, 64);
  EXPECT_EQ(selfindex.budget.share, 0.075);
}

TEST(DeviceRecipeTest, RowsLieOutsideWhereAnIndexNamesThem) {
  Recipe quire = coded(Code::kNested4, Code::kNested3);
  quire.index = IndexBudget{};
  EXPECT_FALSE(gpu::device_recipe(quire, "").offloads);
  quire.place = {.kind = PagePlace::Kind::kHost, .size_bytes = 9, .cache_bytes = 7};
  const gpu::DeviceRecipe outside = gpu::device_recipe(quire, "");
  EXPECT_TRUE(outside.offloads);
  EXPECT_EQ(outside.limits.outside_bytes, 9u);
  EXPECT_EQ(outside.limits.cache_bytes, 7u);
  Recipe selfindex = coded(Code::kSignVq, Code::kSignVq);
  selfindex.sink_tokens = 0;
  EXPECT_NO_THROW(gpu::device_recipe(selfindex, ""));
  selfindex.place = {.kind = PagePlace::Kind::kHost};
  EXPECT_THROW(gpu::device_recipe(selfindex, ""), Error);  // every step reads all of it
  selfindex.index = IndexBudget{.candidates = 1, .mean_query = true};
  EXPECT_TRUE(gpu::device_recipe(selfindex, "").offloads);
  quire.place = {.kind = PagePlace::Kind::kDisk, .path = "/tmp"};
  EXPECT_THROW(gpu::device_recipe(quire, ""), Error);
  Recipe dense = coded(Code::kTurbo4, Code::kTurbo4);
  Recipe low = coded(Code::kNested3, Code::kNested3);
  low.index = IndexBudget{};
  for (Recipe recipe : {Recipe(), dense, low}) {
    EXPECT_NO_THROW(gpu::device_recipe(recipe, ""));
    recipe.place = {.kind = PagePlace::Kind::kHost};
    EXPECT_THROW(gpu::device_recipe(recipe, ""), Error);
  }
}

std::string refusal(const Recipe& recipe) {
  try {
    gpu::device_recipe(recipe, "the recipe");
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(DeviceRecipeTest, RefusesTheRestInASentence) {
  Recipe dense = coded(Code::kNested4, Code::kNested3);
  dense.index = IndexBudget{.dense_layers = 2};
  Recipe full_rows = coded(Code::kTurbo4, Code::kTurbo4);
  full_rows.full_rows = 64;
  Recipe any_head = coded(Code::kSignVq, Code::kSignVq);
  any_head.sink_tokens = 0;
  any_head.index = IndexBudget{};
  for (const Recipe& recipe :
       {coded(Code::kPolar4, Code::kPolar4), coded(Code::kTurbo2, Code::kTurbo4), coded(Code::kQ8, Code::kQ4),
        coded(Code::kNested4, Code::kNested3), dense, full_rows, any_head,
        coded(Code::kSignVq, Code::kSignVq), Recipe(Format::kF32, Format::kF32),
        Recipe(Format::kF16, Format::kBF16), Recipe(Format::kFP8, Format::kF16)}) {
    EXPECT_EQ(refusal(recipe).find("recipe 'the recipe' "), 0u);
    EXPECT_NE(refusal(recipe).find(", which the CUDA device does not do: use --device cpu"),
              std::string::npos);
  }
}

Recipe with(Recipe recipe, PolicyChoice Recipe::*axis, Policy policy, size_t setting = 0, double value = -1) {
  recipe.*axis = PolicyChoice::usual(policy);
  if (value >= 0) (recipe.*axis).values[setting] = value;
  return recipe;
}

TEST(DeviceRecipeTest, Fp8RowsStayAndAreAllRead) {
  const Recipe fp8(Format::kFP8, Format::kFP8);
  const gpu::DeviceRecipe plain = gpu::device_recipe(fp8, "");
  EXPECT_EQ(plain.format, Format::kFP8);
  EXPECT_EQ(plain.prompt_format(), Format::kF16);
  EXPECT_NE(refusal(with(fp8, &Recipe::keep, Policy::kWindow)).find("fp8 rows leave"), std::string::npos);
  EXPECT_NE(refusal(with(fp8, &Recipe::select, Policy::kQuest)).find("fp8 rows leave"), std::string::npos);
}

TEST(DeviceRecipeTest, RowsAreKeptByPosition) {
  const Recipe turbo = with(coded(Code::kTurbo4, Code::kTurbo4), &Recipe::keep, Policy::kLog);
  const gpu::DeviceRecipe log = gpu::device_recipe(turbo, "");
  EXPECT_EQ(log.kind, AttentionKind::kTurbo);
  EXPECT_EQ(log.reserve.n_settled(1000), LogReserve(ReserveRule::kPublished, 192, 4).n_settled(1000));
  EXPECT_FALSE(log.drops());
  EXPECT_THROW(gpu::device_recipe(coded(Code::kKivi2, Code::kKivi2), ""), Error);
  EXPECT_NO_THROW(
      gpu::device_recipe(with(coded(Code::kKivi2, Code::kKivi2), &Recipe::keep, Policy::kLog), ""));
  const gpu::DeviceRecipe dropping = gpu::device_recipe(with(Recipe(), &Recipe::keep, Policy::kLog), "");
  EXPECT_EQ(dropping.reserve.n_settled(1000), LogReserve(ReserveRule::kPublished, 192, 0).n_settled(1000));
  EXPECT_TRUE(dropping.drops());
  const gpu::DeviceRecipe window = gpu::device_recipe(with(Recipe(), &Recipe::keep, Policy::kWindow), "");
  EXPECT_EQ(window.window_tokens, 2000);
  EXPECT_EQ(window.sink_tokens, 4);
  EXPECT_TRUE(window.drops() && window.gives_rows());
}

TEST(DeviceRecipeTest, RowsAreReadByBounds) {
  const gpu::DeviceRecipe quest = gpu::device_recipe(with(Recipe(), &Recipe::select, Policy::kQuest), "");
  EXPECT_EQ(quest.kind, AttentionKind::kExact);
  EXPECT_EQ(quest.quest.page_tokens, 16);
  EXPECT_EQ(quest.quest.dense_layers, 2);
  EXPECT_EQ(quest.quest.budget.share, 0.075);
}

TEST(DeviceRecipeTest, OtherPoliciesAreRefused) {
  Recipe outside = with(coded(Code::kNested4, Code::kNested3), &Recipe::keep, Policy::kLog);
  outside.index = IndexBudget{};
  EXPECT_NO_THROW(gpu::device_recipe(outside, ""));
  outside.place = {.kind = PagePlace::Kind::kHost};
  Recipe monarch = with(coded(Code::kNested4, Code::kNested3), &Recipe::promote, Policy::kHotPages);
  monarch.index = IndexBudget{};
  Recipe signs = with(coded(Code::kSignVq, Code::kSignVq), &Recipe::keep, Policy::kLog);
  signs.sink_tokens = 0;
  const Recipe rows;
  for (const Recipe& recipe :
       {outside, monarch, signs, with(rows, &Recipe::keep, Policy::kHeavyHitters),
        with(rows, &Recipe::keep, Policy::kSnapKv), with(rows, &Recipe::select, Policy::kDoubleSparse),
        with(coded(Code::kTurbo4, Code::kTurbo4), &Recipe::keep, Policy::kLog, 2, 1),
        with(rows, &Recipe::select, Policy::kQuest, 0, 8),
        with(rows, &Recipe::select, Policy::kQuest, 2, 1)}) {
    EXPECT_NE(refusal(recipe).find(", which the CUDA device does not do: use --device cpu"),
              std::string::npos);
  }
}

TEST(DeviceRecipeTest, ModelsOfOtherSizesAreRefused) {
  ModelConfig config = gpu::random_config(gpu::random_shape("llama-3.1-8b"));
  for (const ModelFamily& family : families()) {
    config.family = &family;
    EXPECT_NO_THROW(gpu::check_model(config)) << family.architecture;
  }
  config = gpu::random_config(gpu::random_shape("qwen2.5-7b"));
  EXPECT_NO_THROW(gpu::check_model(config));
  config.head_dim = 112;
  EXPECT_THROW(gpu::check_model(config), Error);
  EXPECT_THROW(gpu::random_shape("llama"), Error);
}

TEST(DeviceRecipeTest, DevicesAreNumbers) {
  EXPECT_EQ(gpu::device_number("cpu"), -1);
  EXPECT_EQ(gpu::device_number("cuda"), 0);
  EXPECT_EQ(gpu::device_number("cuda:3"), 3);
  for (const char* text : {"", "gpu", "cuda:", "cuda:-1", "cuda:1x", "cuda1"}) {
    EXPECT_THROW(gpu::device_number(text), Error) << text;
  }
}

}  // namespace
}  // namespace quire::test
