// What must not change a bit of the logits: chunks, threads, workspaces, and what a cache held before.
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "property/model/run_model.h"
#include "property/model/tiny_model.h"

namespace quire::test {
namespace {

TinySpec small(TensorType type) {
  TinySpec spec;
  spec.type = type;
  spec.n_heads = 6;
  spec.n_kv_heads = 2;
  spec.head_dim = 32;
  spec.width = 64;
  spec.ffn_width = 96;
  return spec;
}

class Equal : public testing::TestWithParam<std::tuple<TensorType, Precision>> {
 protected:
  Model model(size_t seed = 1) const {
    return load(TinyFile(small(std::get<0>(GetParam())), seed).gguf, std::get<1>(GetParam()));
  }
};

TEST_P(Equal, InAnyChunks) {
  const Model tiny = model();
  const std::vector<int32_t> tokens = random_tokens(150, 40, 1);
  for (const char* recipe : {"f32", "full"}) {
    const std::vector<float> whole = run_model(tiny, tokens, 150, 1, recipe);
    for (const size_t step : {1, 7, 8, 33, 64}) {
      ASSERT_EQ(run_model(tiny, tokens, step, 1, recipe), whole) << recipe << " in steps of " << step;
    }
  }
}

TEST_P(Equal, BeyondOneChunkOfTheForwardPass) {
  const Model tiny = model();
  const std::vector<int32_t> tokens = random_tokens(530, 40, 2);
  const std::vector<float> whole = run_model(tiny, tokens, 530, 1, "full");
  ASSERT_EQ(run_model(tiny, tokens, 64, 1, "full"), whole);
  ASSERT_EQ(run_model(tiny, tokens, 257, 2, "full"), whole);
}

TEST_P(Equal, WithAnyThreads) {
  const Model tiny = model();
  const std::vector<int32_t> tokens = random_tokens(60, 40, 3);
  for (const size_t step : {1, 60}) {
    const std::vector<float> alone = run_model(tiny, tokens, step, 1, "full");
    for (const int n_threads : {2, 3, 5}) {
      ASSERT_EQ(run_model(tiny, tokens, step, n_threads, "full"), alone)
          << n_threads << " threads, steps " << step;
    }
  }
}

// The weights themselves do not depend on who packed them.
TEST_P(Equal, LoadedByAnyTeam) {
  const TinyFile file(small(std::get<0>(GetParam())));
  Team team(3);
  const Model shared = Model::load(file.gguf, team, std::get<1>(GetParam()));
  const std::vector<int32_t> tokens = random_tokens(20, 40, 4);
  EXPECT_EQ(run_model(shared, tokens, 20), run_model(model(), tokens, 20));
  EXPECT_GE(shared.weight_bytes(), file.bytes.size() / 2);
}

// After a crop the cache goes on as if the forgotten tokens had never been.
TEST_P(Equal, AfterACrop) {
  const Model tiny = model();
  const std::vector<int32_t> tokens = random_tokens(90, 40, 5);
  const std::vector<int32_t> others = random_tokens(50, 40, 6);
  const std::vector<float> whole = run_model(tiny, tokens, 90, 1, "full");
  PagePool pool;
  Cache cache(Recipe{}, tiny.config().geometry(), pool);
  Workspace workspace;
  Team team(1);
  run_tokens(tiny, tokens, 70, cache, workspace, team);
  run_tokens(tiny, others, 13, cache, workspace, team);
  cache.crop(65);
  const std::vector<float> rest = run_tokens(tiny, std::span(tokens).subspan(65), 9, cache, workspace, team);
  EXPECT_TRUE(std::equal(rest.begin(), rest.end(), whole.begin() + 65 * 40));
}

INSTANTIATE_TEST_SUITE_P(Kinds, Equal,
                         testing::Combine(testing::Values(TensorType::F32, TensorType::Q4_1,
                                                          TensorType::Q8_0),
                                          testing::Values(Precision::kFast, Precision::kPrecise)),
                         [](const auto& kind) {
                           return std::string(tensor_type_name(std::get<0>(kind.param))) +
                                  (std::get<1>(kind.param) == Precision::kFast ? "Fast" : "Precise");
                         });

// A workspace that served another model, even one that lived at the same address, serves this one.
TEST(Workspaces, ServeOneModelAfterTheOther) {
  TinySpec first = small(TensorType::F32);
  TinySpec second = first;
  second.rope_base = 500000;
  TinySpec third = first;
  third.rope_factors = true;
  const std::vector<int32_t> tokens = random_tokens(30, 40, 7);
  Workspace workspace;
  std::optional<Model> model;
  for (const TinySpec& spec : {first, second, third, first}) {
    model.reset();
    model.emplace(load(TinyFile(spec).gguf, Precision::kPrecise));
    PagePool pool;
    Cache cache(Recipe{}, model->config().geometry(), pool);
    Team team(1);
    EXPECT_EQ(run_tokens(*model, tokens, 30, cache, workspace, team),
              run_model(*model, tokens, 30, 1, "full"));
  }
}

TEST(Logits, OfChosenRows) {
  const Model tiny = load(TinyFile(small(TensorType::Q4_0)).gguf, Precision::kFast);
  const std::vector<int32_t> tokens = random_tokens(300, 40, 8);
  const std::vector<float> all = run_model(tiny, tokens, 300, 1, "full");
  PagePool pool;
  Cache cache(Recipe{}, tiny.config().geometry(), pool);
  Workspace workspace;
  Team team(2);
  tiny.forward(tokens, cache, workspace, team);
  for (const std::vector<size_t>& rows :
       {std::vector<size_t>{299}, {0}, {5, 5, 100}, {299, 17, 3, 250, 8, 9, 10, 11, 12}}) {
    std::vector<float> out(rows.size() * 40 + 1, -77.0f);
    tiny.logits(rows, workspace, team, out.data());
    for (size_t i = 0; i < rows.size(); ++i) {
      EXPECT_TRUE(std::equal(&out[i * 40], &out[i * 40] + 40, &all[rows[i] * 40])) << rows[i];
    }
    EXPECT_EQ(out.back(), -77.0f);
  }
}

TEST(Progress, RisesToOne) {
  const Model tiny = load(TinyFile(small(TensorType::F32)).gguf, Precision::kFast);
  PagePool pool;
  Cache cache(Recipe{}, tiny.config().geometry(), pool);
  Workspace workspace;
  Team team(2);
  std::vector<double> seen;
  tiny.forward(random_tokens(20, 40, 9), cache, workspace, team,
               [&](double share) { seen.push_back(share); });
  ASSERT_FALSE(seen.empty());
  EXPECT_TRUE(std::is_sorted(seen.begin(), seen.end()));
  EXPECT_GE(seen.front(), 0.0);
  EXPECT_EQ(seen.back(), 1.0);
}

TEST(Budget, ARefusedPromptLeavesTheCacheUsable) {
  const Model tiny = load(TinyFile(small(TensorType::F32)).gguf, Precision::kPrecise);
  const std::vector<int32_t> tokens = random_tokens(100, 40, 10);
  const Geometry geometry = tiny.config().geometry();
  PagePool pool(geometry.cache_bytes(Recipe{}, 64));
  Cache cache(Recipe{}, geometry, pool);
  Workspace workspace;
  Team team(1);
  EXPECT_THROW(tiny.forward(tokens, cache, workspace, team), Error);
  EXPECT_EQ(cache.n_tokens(), 0u);
  const std::span<const int32_t> fitting = std::span(tokens).first(64);
  EXPECT_EQ(run_tokens(tiny, fitting, 64, cache, workspace, team), run_model(tiny, fitting, 64, 1, "full"));
}

}  // namespace
}  // namespace quire::test
