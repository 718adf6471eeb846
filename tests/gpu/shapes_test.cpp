// Models of other families and shapes, of random weights, on the device and on the CPU: head sizes that the
// real model does not have, biases, fused tensors, norms behind parts, windows and caps, vocabularies whose
// rows of logits are not aligned.
#include <algorithm>
#include <cstdio>

#include "gpu/random_model_test.h"
#include "study/divergence.h"

namespace quire::test {
namespace {

constexpr RandomGgufShape kShapes[] = {
    {"llama", 2, 160, 256, 2, 1, 80, 301},
    {"phi3", 2, 192, 320, 4, 2, 96, 777},
    {"qwen2", 2, 256, 384, 4, 2, 128, 1001, false},
    {"qwen3", 2, 128, 256, 8, 2, 64, 503},
    {"llama", 2, 256, 256, 2, 1, 256, 333, false},
    {"gemma2", 4, 256, 384, 4, 2, 128, 401, true, 100, 1.5f, 3.0f},
    {"gemma3", 4, 192, 320, 2, 1, 256, 333, true, 65},
};

class DeviceShapes : public testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    if (cuda::device_count() == 0) GTEST_SKIP() << "no CUDA device";
    m_ = std::make_unique<RandomModel>(kShapes[GetParam()]);
  }
  // Largest KL to `expected` of a batch of n that all have the text, led along n_steps tokens behind the
  // prompt.
  double distance(const Recipe& recipe, int n, const std::vector<std::vector<float>>& expected,
                  size_t n_prompt) const {
    const auto device = m_->batch(recipe, n);
    double most = 0;
    for (int s = 0; s < n; ++s) {
      device->prefill(s, m_->tokens(0, n_prompt));
      device->take_tokens();
      most = std::max(most, kl_divergence(expected[0], device->logits(s)));
    }
    for (size_t i = 0; i + 1 < expected.size(); ++i) {
      for (int s = 0; s < n; ++s) device->set_token(s, m_->text[n_prompt + i]);
      device->step();
      device->take_tokens();
      if (i % 9 == 0) most = std::max(most, kl_divergence(expected[i + 1], device->logits(n - 1)));
    }
    return most;
  }
  void print(const char* recipe, int n, double most) const {
    std::printf("%-6s heads of %3zu, %4zu tokens, %-22s batch of %d: KL at most %.2e\n",
                m_->shape.architecture, m_->shape.head_dim, m_->shape.vocabulary, recipe, n, most);
  }
  // Refused on the device, and tested as such.
  bool is_refused(const Recipe& recipe) const {
    return recipe.coded &&
           (m_->engine->facts(recipe).key_biases != nullptr || (recipe.index && m_->shape.score_cap != 0));
  }

  std::unique_ptr<RandomModel> m_;
};

// The same text in every sequence: of one product kernel (1), of several rows of it (5) and of the library's
// (9).
TEST_P(DeviceShapes, AgreeWithTheCpu) {
  for (const char* name : {"full", "fp8", "turbo4", "q8", "quire(budget=100%)"}) {
    const Recipe recipe = Recipe::parse(name);
    if (is_refused(recipe)) continue;
    const auto expected = m_->cpu_logits(recipe, 400, 100);
    for (const int n : {1, 5, 9}) {
      const double most = distance(recipe, n, expected, 400);
      print(name, n, most);
      const bool is_coarse = recipe.coded || recipe.key_format == Format::kFP8;
      EXPECT_LE(most, is_coarse ? 2e-3 : 1e-4) << m_->shape.architecture << " " << name << " " << n;
    }
  }
}

// Two bits a number, and statistics of the text itself. Weights are numbers of bf16 on both sides, but a
// prompt's activations are rounded to it on the device, and codes jump with that. A text of steps alone has
// the same rows. (Which rows a budget leaves out may hang on one code, and the text is noise: all are read.)
TEST_P(DeviceShapes, AgreeWithTheCpuBySignsOfTheirOwnText) {
  for (const char* name : {"selfindex(budget=100%)", "k=signvq,v=signvq,full_rows=64"}) {
    const Recipe recipe = Recipe::parse(name);
    if (m_->engine->facts(recipe).key_biases != nullptr || m_->shape.score_cap != 0) continue;
    for (const size_t n_prompt : {1, 560}) {
      const double most = distance(recipe, 1, m_->cpu_logits(recipe, n_prompt, 650 - n_prompt), n_prompt);
      std::printf("behind %3zu: ", n_prompt);
      print(name, 1, most);
      EXPECT_LE(most, n_prompt == 1 ? 3e-4 : 5e-3) << m_->shape.architecture << " " << name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Random, DeviceShapes, testing::Range(0, static_cast<int>(std::size(kShapes))));

}  // namespace
}  // namespace quire::test
