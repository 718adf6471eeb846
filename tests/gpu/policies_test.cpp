// Recipes that keep or select rows by a policy, on the device and on the CPU: small models of random weights,
// prompts in pieces, steps, forks, cuts and caches that change sides.
#include <algorithm>
#include <cstdio>
#include <string_view>

#include "base/device_error.h"
#include "engine/engine.h"
#include "gpu/cache_bytes.h"
#include "gpu/device_batch.h"
#include "gpu/device_model.h"
#include "gpu/random_gguf.h"
#include "kernels/cuda/device_buffer.h"
#include "study/divergence.h"

namespace quire::test {
namespace {

// A KV head with 3 and with 8 query heads.
constexpr RandomGgufShape kPolicyShapes[] = {{"llama", 3, 192, 256, 6, 2, 64, 503},
                                             {"qwen3", 3, 256, 256, 8, 1, 128, 311}};

// Steps of so many tokens at most, as a Session computes prompts of endless recipes.
constexpr size_t kCpuStep = 256;

class DevicePolicies : public testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    if (cuda::device_count() == 0) GTEST_SKIP() << "no CUDA device";
    const RandomGgufShape& shape = kPolicyShapes[GetParam()];
    bytes_ = RandomGguf(shape, 21).build();
    EngineOptions options;
    options.n_threads = 2;
    options.precision = Precision::kPrecise;
    engine_ = std::make_unique<Engine>(GgufFile::from_memory(bytes_, "random.gguf"), options);
    model_ = std::make_unique<gpu::DeviceModel>(
        gpu::DeviceModel::load(GgufFile::from_memory(bytes_, "random.gguf"), {}, 0));
    Random random(4);
    for (int i = 0; i < 1600; ++i) text_.push_back(static_cast<int32_t>(random.below(shape.vocabulary)));
  }

  std::unique_ptr<gpu::DeviceBatch> batch(const Recipe& recipe, int n) const {
    gpu::BatchOptions options;
    options.recipe = recipe;
    options.n_sequences = n;
    options.context_tokens = text_.size();
    return std::make_unique<gpu::DeviceBatch>(*model_, options, engine_->facts(recipe));
  }
  std::span<const int32_t> text(size_t first, size_t n) const { return std::span(text_).subspan(first, n); }

  // The logits behind the tokens.
  std::vector<float> on_cpu(Cache& cache, std::span<const int32_t> tokens) {
    const size_t most = cache.recipe().endless() ? kCpuStep : tokens.size();
    size_t n = 0;
    for (size_t first = 0; first < tokens.size(); first += n) {
      n = std::min(most, tokens.size() - first);
      engine_->forward(tokens.subspan(first, n), cache, workspace_);
    }
    std::vector<float> logits(engine_->config().vocabulary);
    const size_t row = n - 1;
    engine_->logits({&row, 1}, workspace_, logits.data());
    return logits;
  }

  // What counts of many KLs. With weights at random pages are nearly alike: where rounding makes another one
  // the last that is chosen, that step is far from the CPU's, and most steps are not.
  static double distance(std::vector<double> all, const Recipe& recipe) {
    std::ranges::sort(all);
    return recipe.select.given() ? all[all.size() / 2] : all.back();
  }

  // Both take n steps along the text from `first` on, all sequences of the batch the same.
  std::vector<double> step_along(gpu::DeviceBatch& device, Cache& cache, size_t first, size_t n) {
    std::vector<double> all;
    for (size_t i = 0; i < n; ++i) {
      const std::vector<float> expected = on_cpu(cache, text(first + i, 1));
      for (int s = 0; s < device.n_sequences(); ++s) device.set_token(s, text(first + i, 1)[0]);
      device.step();
      device.take_tokens();
      all.push_back(kl_divergence(expected, device.logits(0)));
    }
    return all;
  }

  Bytes bytes_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<gpu::DeviceModel> model_;
  std::vector<int32_t> text_;
  Workspace workspace_;
};

constexpr const char* kPolicies[] = {"logquant(reserve=96)",
                                     "k=turbo4,v=turbo4,keep=log",
                                     "k=turbo4,v=turbo3,keep=log(reserve=64,rule=strided)",
                                     "k=q8,v=q8,sink=0,keep=log(reserve=500)",
                                     "k=nested4,v=nested3,keep=log,select=sign(budget=100%)",
                                     "k=f16,v=f16,keep=log(reserve=150)",
                                     "k=bf16,v=bf16,keep=log(reserve=100,rule=strided)",
                                     "streaming(window=300)",
                                     "streaming(window=77,sink=0)",
                                     "streaming(window=129,sink=16)",
                                     "quest(budget=20%)",
                                     "quest(budget=160,page=32,dense=0)",
                                     "quest(budget=200,page=64,dense=1)",
                                     "k=bf16,v=bf16,select=quest(budget=96,dense=1)"};

double most_of(const Recipe& recipe) {
  // Two bits jump with what rounding does to a prompt, and so does what a page is chosen by.
  if (recipe.keys == SideFormat::of(Code::kKivi2)) return 1e-2;
  if (recipe.select.given()) return 5e-3;
  const bool is_rounded = recipe.coded || recipe.key_format == Format::kBF16;
  return is_rounded ? 5e-3 : 1e-3;
}

// From one token on, by steps, prompts behind others, and steps again; beside another sequence, which is as
// long as it was alone.
TEST_P(DevicePolicies, KeepWhatTheCpuKeeps) {
  for (const char* name : kPolicies) {
    const Recipe recipe = Recipe::parse(name);
    Cache cache = engine_->make_cache(recipe);
    Cache other = engine_->make_cache(recipe);
    const auto device = batch(recipe, 2);
    std::vector<float> other_logits = on_cpu(other, text(700, 430));
    device->prefill(1, text(700, 430));
    device->take_tokens();
    std::vector<double> all = {kl_divergence(other_logits, device->logits(1))};
    size_t first = 0;
    for (const auto& [n_prompt, n_steps] :
         {std::pair<size_t, size_t>{1, 90}, {2, 70}, {600, 80}, {90, 40}, {300, 10}}) {
      const std::vector<float> expected = on_cpu(cache, text(first, n_prompt));
      ASSERT_TRUE(device->prefill(0, text(first, n_prompt)));
      device->take_tokens();
      all.push_back(kl_divergence(expected, device->logits(0)));
      first += n_prompt;
      for (size_t i = 0; i < n_steps; ++i) other_logits = on_cpu(other, text(first + i, 1));
      const std::vector<double> along = step_along(*device, cache, first, n_steps);
      all.insert(all.end(), along.begin(), along.end());
      first += n_steps;
      all.push_back(kl_divergence(other_logits, device->logits(1)));
    }
    std::printf("heads of %3zu, %-54s KL %.2e, at most %.2e\n", kPolicyShapes[GetParam()].head_dim, name,
                distance(all, recipe), *std::ranges::max_element(all));
    EXPECT_LE(distance(all, recipe), most_of(recipe)) << name;
    EXPECT_EQ(device->n_tokens(0), first);
  }
}

// A fork goes its own way, and neither sees what the other did.
TEST_P(DevicePolicies, ForksAreAsTheirSource) {
  for (const char* name : kPolicies) {
    const auto device = batch(Recipe::parse(name), 2);
    const auto alone = batch(Recipe::parse(name), 1);
    device->prefill(0, text(0, 410));
    alone->prefill(0, text(0, 410));
    device->take_tokens();
    alone->take_tokens();
    device->fork(0, 1);
    for (size_t i = 0; i < 150; ++i) {
      device->set_token(0, text(900 + i, 1)[0]);
      device->set_token(1, text(410 + i, 1)[0]);
      alone->set_token(0, text(410 + i, 1)[0]);
      for (gpu::DeviceBatch* one : {device.get(), alone.get()}) {
        one->step();
        one->take_tokens();
      }
    }
    EXPECT_LE(kl_divergence(alone->logits(0), device->logits(1)), 1e-5) << name;
    EXPECT_GT(kl_divergence(alone->logits(0), device->logits(0)), 1e-5) << name;
  }
}

// Steps are cut off where nothing has left with them, and refused to be elsewhere.
TEST_P(DevicePolicies, StepsAreCutOff) {
  for (const char* name : kPolicies) {
    const Recipe recipe = Recipe::parse(name);
    const auto device = batch(recipe, 1);
    device->prefill(0, text(0, 500));
    device->take_tokens();
    const auto step = [&](size_t i) {
      device->set_token(0, text(500 + i, 1)[0]);
      device->step();
      device->take_tokens();
    };
    size_t n = 0;
    while (device->step_codes() && n < 100) step(n++);
    if (device->step_codes()) {  // as with every step of a ring
      EXPECT_THROW(device->crop(0, 500), Error) << name;
      EXPECT_EQ(device->n_tokens(0), 500 + n);
      continue;
    }
    step(n);
    const std::vector<float> once = device->logits(0);
    device->crop(0, 500 + n);
    step(n);
    EXPECT_EQ(device->logits(0), once) << name;
    if (recipe.keep.given()) {
      EXPECT_THROW(device->crop(0, 100), Error) << name;
      continue;
    }
    // Bounds of a page that was cut are made anew, whatever came to stand there meanwhile.
    const auto along = [&](size_t from) {
      device->crop(0, 395);
      for (size_t i = 0; i < 120; ++i) {
        device->set_token(0, text(from + i, 1)[0]);
        device->step();
        device->take_tokens();
      }
      return device->logits(0);
    };
    const std::vector<float> first = along(395);
    EXPECT_NE(along(900), first) << name;
    EXPECT_EQ(along(395), first) << name;
  }
}

// Whichever allocation is refused: of a batch nothing is left, of a prompt an empty sequence.
TEST_P(DevicePolicies, MemoryThatIsRefusedLeavesNothing) {
  for (const char* name : {"k=turbo4,v=turbo4,keep=log", "streaming(window=129)", "quest(budget=160)"}) {
    const Recipe recipe = Recipe::parse(name);
    int n_refused = 0;
    const auto until_it_is_not = [&](const auto& attempt) {
      for (int n = 0;; ++n, ++n_refused) {
        cuda::refuse_allocation(n);
        try {
          attempt();
          cuda::refuse_allocation(-1);
          return;
        } catch (const DeviceError& error) {
          EXPECT_NE(std::string(error.what()).find("has no room for"), std::string::npos) << error.what();
        }
      }
    };
    std::unique_ptr<gpu::DeviceBatch> device;
    until_it_is_not([&] { device = batch(recipe, 1); });
    EXPECT_GT(n_refused, 15) << name;
    until_it_is_not([&] {
      EXPECT_EQ(device->n_tokens(0), 0u);
      EXPECT_EQ(device->cache_bytes(), 0u);
      device->prefill(0, text(0, 400));
    });
    const auto other = batch(recipe, 1);
    other->prefill(0, text(0, 400));
    EXPECT_EQ(device->logits(0), other->logits(0)) << name;
  }
}

// From the CPU to the device and back the same bytes; codes being the CPU's own, what follows is nearer.
TEST_P(DevicePolicies, CachesChangeSides) {
  for (const char* name : kPolicies) {
    const Recipe recipe = Recipe::parse(name);
    Cache cache = engine_->make_cache(recipe);
    on_cpu(cache, text(0, 430));
    for (size_t i = 0; i < 170; ++i) on_cpu(cache, text(430 + i, 1));
    const auto device = batch(recipe, 1);
    device->load(0, cache, text(0, 600));
    Cache back = engine_->make_cache(recipe);
    device->save(0, back);
    // Where rows leave for good each side has its own order of them.
    if (!recipe.drops()) {
      ASSERT_EQ(bytes_of(back), bytes_of(cache)) << name;
    }
    const double there = distance(step_along(*device, cache, 600, 60), recipe);
    Cache from_device = engine_->make_cache(recipe);
    device->save(0, from_device);
    const double and_back = distance(step_along(*device, from_device, 660, 60), recipe);
    std::printf("%-52s KL of going on on the device %.2e, on the CPU again %.2e\n", name, there, and_back);
    EXPECT_LE(std::max(there, and_back), 2e-3) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Random, DevicePolicies,
                         testing::Range(0, static_cast<int>(std::size(kPolicyShapes))));

}  // namespace
}  // namespace quire::test
