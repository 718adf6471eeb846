// Batches against single sequences, forks and crops against the same text computed anew, tokens drawn on the
// device against the CPU's draws, and memory that is refused.
#include <cuda_runtime_api.h>

#include <cmath>

#include "base/device_error.h"
#include "engine/sampler.h"
#include "gpu/device_model_test.h"
#include "gpu/free_bytes.h"
#include "kernels/cuda/pinned_memory.h"
#include "study/divergence.h"

namespace quire::test {
namespace {

class DeviceBatches : public DeviceModelTest {
 protected:
  static std::span<const int32_t> prompt(int sequence) {
    return text(static_cast<size_t>(37 * sequence), static_cast<size_t>(1 + 61 * sequence % 330));
  }
  static constexpr size_t kSteps = 70;
  static constexpr size_t kContext = 512;

  struct Logits {
    std::vector<std::vector<float>> behind_prompts;
    std::vector<std::vector<float>> behind_steps;
  };
  // Behind the prompts, and behind kSteps forced steps; the prompt of sequence i is prompt(first + i).
  static Logits run(const std::string& recipe, int first, int n) {
    const auto device = batch(options(recipe, n, kContext));
    Logits logits;
    for (int i = 0; i < n; ++i) {
      device->prefill(i, prompt(first + i));
      device->take_tokens();
    }
    for (int i = 0; i < n; ++i) logits.behind_prompts.push_back(device->logits(i));
    for (size_t step = 0; step < kSteps; ++step) {
      for (int i = 0; i < n; ++i) device->set_token(i, text(2000 + step, 1)[0]);
      device->step();
      device->take_tokens();
    }
    for (int i = 0; i < n; ++i) logits.behind_steps.push_back(device->logits(i));
    return logits;
  }
};

TEST_F(DeviceBatches, EqualSingleSequences) {
  for (const char* recipe : {"full", "turbo4", "quire"}) {
    std::vector<Logits> single;
    for (int i = 0; i < 32; ++i) single.push_back(run(recipe, i, 1));
    for (const int n : {2, 8, 9, 32}) {
      const Logits together = run(recipe, 0, n);
      double most = 0;
      for (size_t i = 0; i < static_cast<size_t>(n); ++i) {
        most = std::max(most, kl_divergence(single[i].behind_steps[0], together.behind_steps[i]));
        // A prompt is computed alone, whatever the batch; rows of logits lie at other addresses.
        EXPECT_LE(kl_divergence(single[i].behind_prompts[0], together.behind_prompts[i]), 1e-6)
            << recipe << ", prompt " << i << " of " << n;
      }
      std::printf("%-8s batch of %2d: largest KL to the single run %.2e\n", recipe, n, most);
      // Products of up to 8 are the same sums; larger ones round activations to bf16.
      EXPECT_LE(most, n <= 8 ? 1e-5 : 2e-3) << recipe << " " << n;
    }
  }
}

// What a sequence is coded by goes with its forks, also if they part before anything is coded.
TEST_F(DeviceBatches, ForksOfSelfIndexAreAsTheirSource) {
  for (const size_t n_prompt : {600, 500}) {
    const auto device = batch(options("selfindex", 2, 700));
    device->prefill(0, text(0, n_prompt));
    device->take_tokens();
    device->fork(0, 1);
    for (size_t i = 0; i < 90; ++i) {
      for (int s = 0; s < 2; ++s) device->set_token(s, text(n_prompt + i, 1)[0]);
      device->step();
      device->take_tokens();
    }
    EXPECT_LE(kl_divergence(device->logits(0), device->logits(1)), 1e-6) << n_prompt;
  }
}

TEST_F(DeviceBatches, ForksAndCropsAreAsComputedAnew) {
  for (const char* recipe : {"full", "turbo4"}) {
    const auto device = batch(options(recipe, 2, kContext));
    const auto step = [&](int32_t a, int32_t b) {
      device->set_token(0, a);
      device->set_token(1, b);
      device->step();
      device->take_tokens();
    };
    device->prefill(0, text(0, 150));
    device->take_tokens();
    device->fork(0, 1);
    for (size_t i = 0; i < 30; ++i) step(text(150 + i, 1)[0], text(1000 + i, 1)[0]);
    const std::vector<float> along = device->logits(0);
    device->crop(1, 150);  // back to where they parted, and along the same way
    device->crop(0, 150);
    for (size_t i = 0; i < 30; ++i) step(text(1000 + i, 1)[0], text(150 + i, 1)[0]);
    EXPECT_LE(kl_divergence(along, device->logits(1)), 1e-6) << recipe;
    EXPECT_GT(kl_divergence(along, device->logits(0)), 1e-6) << recipe;
  }
  const auto device = batch(options("turbo4", 1, kContext));
  device->prefill(0, text(0, 300));
  EXPECT_THROW(device->crop(0, 100), Error);  // coded
  EXPECT_EQ(device->n_tokens(0), 300u);
}

// The same logits, seed and options give the CPU's tokens.
TEST_F(DeviceBatches, DrawAsTheCpuDoes) {
  for (const int top_k : {1, 40, 1000}) {
    gpu::BatchOptions with = options("full", 1, kContext);
    with.sampling = {
        .temperature = 1.3, .top_k = top_k, .top_p = 0.97, .min_p = 0.001, .seed = 7, .banned = {}};
    const auto device = batch(with);
    Sampler sampler({.temperature = 1.3, .top_k = top_k, .top_p = 0.97, .min_p = 0.001, .seed = 7});
    device->prefill(0, text(0, 20));
    for (int i = 0; i < 60; ++i) {
      const int32_t chosen = device->take_tokens()[0];
      ASSERT_EQ(chosen, sampler.sample(device->logits(0), {})) << "token " << i << " of top-k " << top_k;
      device->step();
    }
    device->take_tokens();
  }
}

// The penalty: a second batch, whose logits nothing has changed, is led along the tokens that were chosen.
// The second sequence is a fork that goes on by a generator of its own, behind a crop.
TEST_F(DeviceBatches, PenaliseAsTheCpuDoes) {
  for (const int last_n : {-1, 5, 64}) {
    for (const double temperature : {0.0, 1.3}) {
      gpu::BatchOptions with = options("full", 2, kContext);
      with.sampling = {.temperature = temperature,
                       .top_k = 40,
                       .top_p = 0.97,
                       .min_p = 0.001,
                       .seed = 7,
                       .banned = {},
                       .repeat_penalty = 1.7,
                       .repeat_last_n = last_n};
      SamplingOptions sampling = {.temperature = temperature, .top_k = 40, .top_p = 0.97, .min_p = 0.001};
      sampling.repeat_penalty = 1.7;
      sampling.repeat_last_n = last_n;
      const auto device = batch(with);
      const auto plain = batch(options("full", 2, kContext));
      std::vector<Sampler> samplers;
      std::vector<int32_t> tokens[2];
      for (int s = 0; s < 2; ++s) {
        sampling.seed = 7 + static_cast<uint64_t>(s);
        samplers.emplace_back(sampling);
        tokens[s].assign(text(0, 90).begin(), text(0, 90).end());
      }
      for (const auto& b : {device.get(), plain.get()}) {
        b->prefill(0, text(0, 20));
        b->prefill(0, text(300, 60));  // that is taken back
        b->drop_tokens();
        b->crop(0, 20);
        b->set_draws(0, 0);
        b->prefill(0, text(20, 70));
        b->fork(0, 1);
      }
      plain->drop_tokens();
      int n_penalised = 0;
      for (int i = 0; i < 40; ++i) {
        const std::vector<int32_t> chosen = device->take_tokens();
        // A fork takes the token that its source chose, and its first draw is its next one.
        for (int s = 0; s < (i == 0 ? 1 : 2); ++s) {
          const std::vector<float> logits = plain->logits(s);
          const auto at = static_cast<size_t>(s);
          ASSERT_EQ(chosen[at], samplers[at].sample(logits, tokens[s]))
              << "token " << i << " of " << s << ", last " << last_n << ", temperature " << temperature;
          n_penalised += device->logits(s) != logits ? 1 : 0;
        }
        for (int s = 0; s < 2; ++s) {
          tokens[s].push_back(chosen[i == 0 ? 0 : static_cast<size_t>(s)]);
          plain->set_token(s, tokens[s].back());
        }
        device->step();
        plain->step();
        plain->drop_tokens();
      }
      EXPECT_GT(n_penalised, 70);
    }
  }
}

TEST_F(DeviceBatches, MemoryThatIsRefusedLeavesNothingBehind) {
  for (const char* recipe : {"full", "quire", "quire,place=host(cache=4M)"}) {
    const gpu::BatchOptions with = options(recipe, 2, kContext);
    { batch(with)->prefill(0, text(0, 100)); }  // whatever the runtime keeps for itself is there now
    const size_t before = free_bytes();
    int n_refused = 0;
    for (int n = 0;; ++n) {
      cuda::refuse_allocation(n);
      try {
        const auto device = batch(with);
        cuda::refuse_allocation(-1);
        break;
      } catch (const DeviceError& error) {
        ++n_refused;
        EXPECT_NE(std::string(error.what()).find("has no room for"), std::string::npos) << error.what();
      }
      EXPECT_EQ(free_bytes(), before) << "allocation " << n;
      EXPECT_EQ(cuda::pinned_bytes(), 0u) << "allocation " << n;
    }
    EXPECT_GT(n_refused, 15);
    const auto device = batch(with);
    for (int n = 0;; ++n) {
      cuda::refuse_allocation(n);
      try {
        device->prefill(0, text(0, 200));
        cuda::refuse_allocation(-1);
        break;
      } catch (const DeviceError&) {
        EXPECT_EQ(device->n_tokens(0), 0u);
        EXPECT_EQ(device->cache_bytes(), 0u);
      }
    }
    device->take_tokens();
    const auto other = batch(with);
    other->prefill(0, text(0, 200));
    EXPECT_EQ(device->logits(0), other->logits(0));
  }
}

TEST_F(DeviceBatches, FullContextsAndForeignRecipesAreRefusedInASentence) {
  const auto device = batch(options("full", 1, 21));
  device->prefill(0, text(0, 20));
  device->step();
  EXPECT_THROW(device->step(), Error);
  EXPECT_EQ(device->n_tokens(0), 21u);
  for (const char* recipe :
       {"h2o", "selfindex(mass=0.9)", "k=f32,v=f32", "butler", "quire(dense=2)", "monarch", "quest(page=8)",
        "quest(queries=head)", "k=turbo4,v=turbo4,keep=log(partial=on)", "polar4", "turbo4,place=host",
        "quire,place=disk(path=/tmp)"}) {
    EXPECT_THROW(batch(options(recipe, 1, 64)), Error) << recipe;
  }
}

// What a step of quest lists, and the scores of its pages, are of the cache.
TEST_F(DeviceBatches, MemoryOfListsIsCounted) {
  const auto few = batch(options("quest(budget=64)", 1, 4096));
  const auto many = batch(options("quest(budget=2048)", 1, 4096));
  EXPECT_EQ(many->reserved_bytes(), few->reserved_bytes());
  // At least a number for each unit of 16 rows and KV head.
  const uint64_t n_units = (2048 - 64) / 16 * engine().config().n_kv_heads;
  EXPECT_GE(many->cache_memory_bytes(), few->cache_memory_bytes() + n_units * sizeof(int32_t));
}

}  // namespace
}  // namespace quire::test
