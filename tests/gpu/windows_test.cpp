// Models with layers that see a window, norms behind their parts and capped scores: what only they have.
#include <algorithm>
#include <cstdio>

#include "gpu/cache_bytes.h"
#include "gpu/free_bytes.h"
#include "gpu/library_attention.h"
#include "gpu/random_model_test.h"
#include "study/divergence.h"

namespace quire::test {
namespace {

constexpr RandomGgufShape kGemma2 = {"gemma2", 4, 256, 384, 4, 2, 128, 401, true, 100, 1.5f, 3.0f};
constexpr RandomGgufShape kGemma3 = {"gemma3", 4, 192, 320, 2, 1, 256, 333, true, 65};

class DeviceWindows : public testing::Test {
 protected:
  void SetUp() override {
    if (cuda::device_count() == 0) GTEST_SKIP() << "no CUDA device";
  }
};

// What is compared below and in DeviceShapes, to 1e-4, would differ by more if any of these were ignored, or
// if a window had one token too many.
TEST(RandomFamilies, EveryPartCounts) {
  const auto expected = RandomHostModel(kGemma2).cpu_logits(Recipe::parse("full"), 400, 20);
  RandomGgufShape other[4] = {kGemma2, kGemma2, kGemma2, kGemma2};
  other[0].window = 101;
  other[1].score_cap = 1e4f;
  other[2].logit_cap = 1e4f;
  other[3].post_norm = 1.5f;
  for (const RandomGgufShape& shape : other) {
    const auto logits = RandomHostModel(shape).cpu_logits(Recipe::parse("full"), 400, 20);
    double least = INFINITY;
    for (size_t i = 0; i < logits.size(); ++i) least = std::min(least, kl_divergence(expected[i], logits[i]));
    std::printf("window %zu, caps %g and %g, norms %g: KL at least %.1e\n", shape.window,
                static_cast<double>(shape.score_cap), static_cast<double>(shape.logit_cap),
                static_cast<double>(shape.post_norm), least);
    EXPECT_GT(least, 1.5e-4);
  }
}

// Pieces shorter and longer than the window, over its borders and those of pages; another sequence stays.
TEST_F(DeviceWindows, PromptsBehindOthersAreAsOnTheCpu) {
  for (const RandomGgufShape& shape : {kGemma2, kGemma3}) {
    const RandomModel m(shape);
    for (const char* name : {"full", "turbo4"}) {
      const Recipe recipe = Recipe::parse(name);
      const auto device = m.batch(recipe, 2);
      Cache cache = m.engine->make_cache(recipe);
      size_t first = 0;
      double most = 0;
      for (const size_t n : {3, 60, 2, 64, 1, 200, 5, 64, 170, 30}) {
        const auto expected = m.forward(cache, first, n);
        device->prefill(1, m.tokens(first, n));
        device->take_tokens();
        most = std::max(most, kl_divergence(expected, device->logits(1)));
        first += n;
      }
      std::printf("%s %s, prompts behind others: KL at most %.1e\n", shape.architecture, name, most);
      EXPECT_LE(most, recipe.coded ? 3e-4 : 1e-4) << shape.architecture << " " << name;
    }
  }
}

TEST_F(DeviceWindows, ForksAndCutsAreAsComputedAnew) {
  const RandomModel m(kGemma3);
  const Recipe recipe = Recipe::parse("full");
  const auto device = m.batch(recipe, 2);
  const auto expected = m.cpu_logits(recipe, 300, 60);
  device->prefill(0, m.tokens(0, 300));
  device->take_tokens();
  device->fork(0, 1);
  const auto both = [&](int32_t a, int32_t b) {
    device->set_token(0, a);
    device->set_token(1, b);
    device->step();
    device->take_tokens();
  };
  for (size_t i = 0; i < 60; ++i) {
    both(m.text[300 + i], m.text[600 - i]);
    EXPECT_LE(kl_divergence(expected[i + 1], device->logits(0)), 1e-4) << i;
  }
  // Back to where they parted, and the other one along the same way.
  for (int s = 0; s < 2; ++s) device->crop(s, 300);
  for (size_t i = 0; i < 60; ++i) both(m.text[600 - i], m.text[300 + i]);
  EXPECT_LE(kl_divergence(expected[60], device->logits(1)), 1e-4);
  EXPECT_GT(kl_divergence(expected[60], device->logits(0)), 1e-3);
  // What has left does not come back: 360 tokens hold 4 pages of a window of 65, from token 128 on.
  EXPECT_THROW(device->crop(0, 191), Error);
  EXPECT_EQ(device->n_tokens(0), 360u);
  device->crop(0, 192);
  EXPECT_THROW(device->crop(0, 191), Error);
  device->crop(0, 0);
  device->prefill(0, m.tokens(0, 300));
  device->take_tokens();
  EXPECT_LE(kl_divergence(expected[0], device->logits(0)), 1e-4);
}

// Rows that were brought from the CPU are byte for byte what is read back, and go on on either side.
TEST_F(DeviceWindows, CachesPassBetweenDeviceAndCpu) {
  for (const RandomGgufShape& shape : {kGemma2, kGemma3}) {
    const RandomModel m(shape);
    for (const char* name : {"full", "turbo4", "k=bf16,v=bf16", "k=fp8,v=fp8"}) {
      const Recipe recipe = Recipe::parse(name);
      for (const size_t n : {40, 437}) {
        Cache cache = m.engine->make_cache(recipe);
        m.forward(cache, 0, n);
        const auto device = m.batch(recipe, 1);
        device->load(0, cache, m.tokens(0, n));
        Cache back = m.engine->make_cache(recipe);
        device->save(0, back);
        ASSERT_EQ(bytes_of(back), bytes_of(cache)) << shape.architecture << " " << name << " " << n;
        double most = 0;
        size_t at = n;
        for (; at < n + 90; ++at) {
          const auto expected = m.forward(cache, at, 1);
          RandomModel::step(*device, 0, m.text[at]);
          most = std::max(most, kl_divergence(expected, device->logits(0)));
        }
        Cache from_device = m.engine->make_cache(recipe);
        device->save(0, from_device);
        ASSERT_EQ(from_device.n_tokens(), at);
        for (; at < n + 120; ++at) {
          const auto expected = m.forward(from_device, at, 1);
          RandomModel::step(*device, 0, m.text[at]);
          most = std::max(most, kl_divergence(expected, device->logits(0)));
        }
        std::printf("%s %s from %zu tokens of the CPU on: KL at most %.1e\n", shape.architecture, name, n,
                    most);
        const bool is_coarse = recipe.coded || recipe.key_format == Format::kFP8;
        EXPECT_LE(most, is_coarse ? 1e-4 : 1e-5);  // no prompt, whose activations are bf16
      }
    }
  }
}

TEST_F(DeviceWindows, TakeNoMoreThanTheirWindows) {
  const RandomModel m(kGemma3);
  RandomGgufShape shape = kGemma3;
  shape.window = 0;
  const RandomModel all(shape);
  const Recipe recipe = Recipe::parse("full");
  const auto device = m.batch(recipe, 1);
  const auto larger = all.batch(recipe, 1);
  // 11 pages of two layers less 4 of a ring, and the tables.
  const uint64_t layer_bytes = uint64_t{64} * 2 * 2 * 256;
  EXPECT_EQ(larger->reserved_bytes() - device->reserved_bytes(), 2 * 7 * layer_bytes - 11 * sizeof(int32_t));
  EXPECT_THROW(RandomModel(kGemma2).batch(Recipe::parse("quire"), 1), Error);
  EXPECT_THROW(RandomModel(kGemma2).batch(Recipe::parse("selfindex"), 1), Error);
}

// Windows count, and what is measured of each sequence.
TEST_F(DeviceWindows, BudgetsHoldToTheByte) {
  const RandomModel m(kGemma3);
  for (const char* name : {"full", "turbo4", "selfindex"}) {
    const Recipe recipe = Recipe::parse(name);
    const uint64_t n_bytes = m.batch(recipe, 2)->reserved_bytes();
    EXPECT_EQ(m.batch(recipe, 2, n_bytes)->reserved_bytes(), n_bytes) << name;
    EXPECT_THROW(m.batch(recipe, 2, n_bytes - 1), Error) << name;
  }
}

// More chunks than plans are kept at least: the second pass makes none. (0 both times where there is no
// cuDNN.)
TEST(DevicePlans, OfALongPromptAreAllKept) {
  if (cuda::device_count() == 0) GTEST_SKIP() << "no CUDA device";
  constexpr int kChunks = 131, kTokens = kChunks * gpu::kPromptChunk, kDim = 64;
  const auto rows = [](int n) {
    return cuda::DeviceBuffer(static_cast<size_t>(n) * kDim * sizeof(uint16_t));
  };
  cuda::DeviceBuffer queries = rows(gpu::kPromptChunk), keys = rows(kTokens), out = rows(gpu::kPromptChunk);
  for (cuda::DeviceBuffer* buffer : {&queries, &keys}) buffer->fill(0);
  gpu::LibraryAttention attention;
  const size_t free_before = free_bytes();
  uint64_t n_made = 0;
  for (int pass = 0; pass < 2; ++pass) {
    n_made = attention.n_plans_made();
    for (int chunk = 0; chunk < kChunks; ++chunk) {
      attention.attend(
          {Format::kF16, gpu::kPromptChunk, chunk * gpu::kPromptChunk, 1, 1, kDim, queries.as<uint16_t>(),
           keys.as<uint16_t>(), keys.as<uint16_t>(), kTokens, 0.125f, out.as<uint16_t>()},
          nullptr);
    }
    cuda::wait_for(nullptr);
  }
  std::printf("%d plans: %.1f MB of the device\n", kChunks,
              static_cast<double>(free_before - free_bytes()) / 1e6);
  EXPECT_EQ(attention.n_plans_made(), n_made);
  EXPECT_TRUE(n_made == 0 || n_made == kChunks) << n_made;
}

}  // namespace
}  // namespace quire::test
