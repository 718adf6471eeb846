// One model and one pool under several threads of control, each with its own team, cache and workspace; and
// one team of many walking through prefill and decode. Run under ThreadSanitizer these find what a phase of
// the forward pass reads before another member has written it.
#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "property/model/run_model.h"
#include "property/model/tiny_model.h"

namespace quire::test {
namespace {

TinySpec small(TensorType type) {
  TinySpec spec;
  spec.type = type;
  spec.n_heads = 6;
  spec.n_kv_heads = 2;
  spec.head_dim = 16;
  spec.width = 64;
  spec.ffn_width = 96;
  return spec;
}

class ModelThreads : public testing::TestWithParam<TensorType> {};

TEST_P(ModelThreads, OneTeamOfAnySize) {
  const TinyFile file(small(GetParam()));
  const std::vector<int32_t> tokens = random_tokens(40, 40, 1);
  for (const Precision precision : {Precision::kFast, Precision::kPrecise}) {
    const Model alone = load(file.gguf, precision);
    const std::vector<float> wanted = run_model(alone, tokens, 40, 1, "full");
    for (const int n_threads : {2, 3, 4}) {
      Team team(n_threads);
      const Model model = Model::load(file.gguf, team, precision);
      ASSERT_EQ(run_model(model, tokens, 40, n_threads, "full"), wanted) << n_threads;
      ASSERT_EQ(run_model(model, tokens, 5, n_threads, "full"), wanted) << n_threads;
      ASSERT_EQ(run_model(model, std::span(tokens).first(12), 1, n_threads, "full"),
                std::vector<float>(wanted.begin(), wanted.begin() + 12 * 40))
          << n_threads;
    }
  }
}

TEST_P(ModelThreads, OneModelAndPoolForSeveralCallers) {
  const Model model = load(TinyFile(small(GetParam())).gguf, Precision::kFast);
  PagePool pool;
  std::vector<std::vector<int32_t>> prompts;
  std::vector<std::vector<float>> outputs(3);
  for (uint64_t i = 0; i < 3; ++i) prompts.push_back(random_tokens(50, 40, 10 + i));
  std::vector<std::thread> callers;
  for (size_t i = 0; i < 3; ++i) {
    callers.emplace_back([&, i] {
      Cache cache(Recipe{}, model.config().geometry(), pool);
      Workspace workspace;
      Team team(2);
      outputs[i] = run_tokens(model, prompts[i], 13, cache, workspace, team);
    });
  }
  for (std::thread& caller : callers) caller.join();
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(outputs[i], run_model(model, prompts[i], 50, 1, "full")) << i;
  EXPECT_EQ(pool.used_bytes(), 0u);
}

std::string type_name(const testing::TestParamInfo<TensorType>& info) { return tensor_type_name(info.param); }

INSTANTIATE_TEST_SUITE_P(Kinds, ModelThreads,
                         testing::Values(TensorType::F32, TensorType::Q4_1, TensorType::Q8_0), type_name);

}  // namespace
}  // namespace quire::test
