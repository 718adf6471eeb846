// Models of other families and shapes, of random weights, on the device and on the CPU: head sizes that the
// real model does not have, biases, fused tensors, vocabularies whose rows of logits are not aligned.
#include <algorithm>
#include <cstdio>

#include "engine/engine.h"
#include "gpu/device_batch.h"
#include "gpu/device_model.h"
#include "gpu/random_gguf.h"
#include "kernels/cuda/device_buffer.h"
#include "study/divergence.h"

namespace quire::test {
namespace {

constexpr RandomGgufShape kShapes[] = {
    {"llama", 2, 160, 256, 2, 1, 80, 301},          {"phi3", 2, 192, 320, 4, 2, 96, 777},
    {"qwen2", 2, 256, 384, 4, 2, 128, 1001, false}, {"qwen3", 2, 128, 256, 8, 2, 64, 503},
    {"llama", 2, 256, 256, 2, 1, 256, 333, false},
};

class DeviceShapes : public testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    if (cuda::device_count() == 0) GTEST_SKIP() << "no CUDA device";
    shape_ = kShapes[GetParam()];
    bytes_ = RandomGguf(shape_, 11).build();
    EngineOptions options;
    options.n_threads = 2;
    options.precision = Precision::kPrecise;
    engine_ = std::make_unique<Engine>(GgufFile::from_memory(bytes_, "random.gguf"), options);
    model_ = std::make_unique<gpu::DeviceModel>(
        gpu::DeviceModel::load(GgufFile::from_memory(bytes_, "random.gguf"), {}, 0));
    Random random(3);
    for (int i = 0; i < 600; ++i) text_.push_back(static_cast<int32_t>(random.below(shape_.vocabulary)));
  }

  std::unique_ptr<gpu::DeviceBatch> batch(const Recipe& recipe, int n) const {
    gpu::BatchOptions options;
    options.recipe = recipe;
    options.n_sequences = n;
    options.context_tokens = text_.size();
    return std::make_unique<gpu::DeviceBatch>(*model_, options, engine_->facts(recipe));
  }

  std::vector<std::vector<float>> cpu_logits(const Recipe& recipe, size_t n_prompt, size_t n_steps) const {
    Cache cache = engine_->make_cache(recipe);
    Workspace workspace;
    std::vector<std::vector<float>> all;
    for (size_t i = 0; i <= n_steps; ++i) {
      const size_t n = i == 0 ? n_prompt : 1;
      engine_->forward(std::span(text_).subspan(i == 0 ? 0 : n_prompt + i - 1, n), cache, workspace);
      const size_t row = n - 1;
      all.emplace_back(engine_->config().vocabulary);
      engine_->logits({&row, 1}, workspace, all.back().data());
    }
    return all;
  }

  RandomGgufShape shape_{};
  Bytes bytes_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<gpu::DeviceModel> model_;
  std::vector<int32_t> text_;
};

// The same text in every sequence: of one product kernel (1), of several rows of it (5) and of the library's
// (9).
TEST_P(DeviceShapes, AgreeWithTheCpu) {
  for (const char* name : {"full", "turbo4", "q8", "quire(budget=100%)"}) {
    const Recipe recipe = Recipe::parse(name);
    if (recipe.coded && engine_->facts(recipe).key_biases != nullptr)
      continue;  // refused, and tested as such
    const auto expected = cpu_logits(recipe, 400, 100);
    for (const int n : {1, 5, 9}) {
      const auto device = batch(recipe, n);
      double most = 0;
      for (int s = 0; s < n; ++s) {
        device->prefill(s, std::span(text_).first(400));
        device->take_tokens();
        most = std::max(most, kl_divergence(expected[0], device->logits(s)));
      }
      for (size_t i = 0; i < 100; ++i) {
        for (int s = 0; s < n; ++s) device->set_token(s, text_[400 + i]);
        device->step();
        device->take_tokens();
        if (i % 9 == 0) most = std::max(most, kl_divergence(expected[i + 1], device->logits(n - 1)));
      }
      std::printf("%-6s heads of %3zu, %4zu tokens, %-18s batch of %d: KL at most %.2e\n",
                  shape_.architecture, shape_.head_dim, shape_.vocabulary, name, n, most);
      EXPECT_LE(most, recipe.coded ? 5e-3 : 1e-3) << shape_.architecture << " " << name << " " << n;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Random, DeviceShapes, testing::Range(0, static_cast<int>(std::size(kShapes))));

}  // namespace
}  // namespace quire::test
