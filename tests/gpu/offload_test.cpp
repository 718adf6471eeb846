// Rows in memory of the host: what comes out is bit by bit what comes out of the same rows on the device,
// whatever is fetched, found or read in place.
#include "base/device_error.h"
#include "gpu/device_model_test.h"
#include "kernels/cuda/pinned_memory.h"
#include "study/divergence.h"

namespace quire::test {
namespace {

class Offloaded : public DeviceModelTest {
 protected:
  static std::vector<std::vector<float>> forced(gpu::DeviceBatch& device, size_t n_prompt, size_t n_steps) {
    device.prefill(0, text(0, n_prompt));
    device.take_tokens();
    std::vector<std::vector<float>> logits = {device.logits(0)};
    for (size_t i = 0; i < n_steps; ++i) {
      device.set_token(0, text(n_prompt + i, 1)[0]);
      device.step();
      device.take_tokens();
      logits.push_back(device.logits(0));
    }
    return logits;
  }
  static void print(const std::string& recipe, const gpu::DeviceBatch::Outside& seen) {
    std::printf("%-52s %8.1f MB outside, asked %9llu, fetched %8llu, in place %8llu\n", recipe.c_str(),
                static_cast<double>(seen.outside_bytes) / 1e6, static_cast<unsigned long long>(seen.asked),
                static_cast<unsigned long long>(seen.fetched),
                static_cast<unsigned long long>(seen.in_place));
  }
};

// 140 steps behind the prompt code two pages or three: the graph of the first step serves them all.
TEST_F(Offloaded, AreBitByBitTheRowsOfTheDevice) {
  constexpr size_t kPrompt = 1100, kSteps = 140;
  for (const char* recipe :
       {"quire", "quire(budget=300)", "quire(mass=0.9)", "quire(budget=100%)",
        "k=nested4,v=nested4,select=sign", "selfindex", "selfindex(budget=300)", "selfindex(budget=100%)"}) {
    const auto there = batch(options(recipe, 1, kPrompt + kSteps));
    const auto expected = forced(*there, kPrompt, kSteps);
    EXPECT_EQ(there->take_outside().asked, 0u);
    // Places for nearly all rows; for some; for a few, so that most are read in place.
    for (const char* place : {",place=host", ",place=host(cache=3M)", ",place=host(cache=110K)"}) {
      const std::string outside_recipe = std::string(recipe).append(place);
      const auto outside = batch(options(outside_recipe, 1, kPrompt + kSteps));
      const auto got = forced(*outside, kPrompt, kSteps);
      const gpu::DeviceBatch::Outside seen = outside->take_outside();
      print(outside_recipe, seen);
      for (size_t i = 0; i < got.size(); ++i)
        ASSERT_EQ(got[i], expected[i]) << outside_recipe << " step " << i;
      EXPECT_GT(seen.asked, 0u);
      EXPECT_GT(seen.fetched, 0u);
      EXPECT_LT(seen.fetched, seen.asked);
      if (std::string(place).ends_with("110K)")) {
        EXPECT_GT(seen.in_place, seen.asked / 2) << outside_recipe;
      } else if (std::string(place).ends_with("host")) {
        EXPECT_LT(seen.in_place, seen.asked / 50) << outside_recipe;
      }
      EXPECT_LT(outside->cache_bytes(), there->cache_bytes());
    }
  }
}

TEST_F(Offloaded, AreNearTheCpu) {
  constexpr size_t kPrompt = 1100, kSteps = 80;
  const std::string recipe = "quire,place=host(cache=4M)";
  const auto device = batch(options(recipe, 1, kPrompt + kSteps));
  const auto logits = forced(*device, kPrompt, kSteps);
  Cache cache = engine().make_cache(Recipe::parse(recipe));
  Workspace workspace;
  std::vector<float> row(engine().config().vocabulary);
  double sum = 0;
  for (size_t i = 0; i <= kSteps; ++i) {
    const size_t n = i == 0 ? kPrompt : 1;
    engine().forward(text(i == 0 ? 0 : kPrompt + i - 1, n), cache, workspace);
    const size_t last = n - 1;
    engine().logits({&last, 1}, workspace, row.data());
    sum += kl_divergence(row, logits[i]);
  }
  std::printf("%s: KL to the CPU %.2e\n", recipe.c_str(), sum / (kSteps + 1));
  EXPECT_LE(sum / (kSteps + 1), 1e-3);
}

// Sequences of different texts and lengths, a fork that goes on with other words past borders of pages, and
// another text in place of one: what was fetched for one is never taken for another.
TEST_F(Offloaded, AnotherTextBeginsAnew) {
  const auto history = [](const std::string& recipe) {
    const auto device = batch(options(recipe, 3, 1500));
    std::vector<std::vector<float>> all;
    const auto prompt = [&](int sequence, size_t first, size_t n) {
      device->prefill(sequence, text(first, n));
      device->take_tokens();
    };
    // All three take in other words.
    const auto steps = [&](size_t first, size_t n) {
      for (size_t i = 0; i < n; ++i) {
        for (int s = 0; s < 3; ++s) {
          device->set_token(s, text(2000 + 400 * static_cast<size_t>(s) + first + i, 1)[0]);
        }
        device->step();
        device->take_tokens();
        for (int s = 0; s < 3; ++s) all.push_back(device->logits(s));
      }
    };
    prompt(0, 0, 900);
    prompt(1, 1200, 1250);
    device->fork(0, 2);
    steps(0, 140);  // two pages are coded at least, the fork's own ones with other rows
    device->crop(1, 0);
    prompt(1, 500, 700);
    steps(140, 20);
    device->crop(2, 0);
    device->fork(1, 2);
    steps(160, 70);
    return all;
  };
  for (const std::string recipe : {"quire(budget=300)", "k=nested4,v=nested4,select=sign", "selfindex"}) {
    const auto expected = history(recipe);
    EXPECT_NE(expected[3 * 139], expected[3 * 139 + 2]) << "the fork did not diverge";
    for (const char* place : {",place=host", ",place=host(cache=4M)"}) {
      const auto got = history(recipe + place);
      ASSERT_EQ(got.size(), expected.size());
      for (size_t i = 0; i < got.size(); ++i) {
        ASSERT_EQ(got[i], expected[i]) << recipe << place << " step " << i / 3 << " sequence " << i % 3;
      }
    }
  }
}

// Steps are counted, those that nobody reads among them; nothing asked is no share.
TEST_F(Offloaded, StepsAreCounted) {
  const auto device = batch(options("quire,place=host", 2, 700));
  EXPECT_EQ(device->take_outside().hit_rate(), std::nullopt);
  for (int s = 0; s < 2; ++s) device->prefill(s, text(static_cast<size_t>(100 * s), 600));
  const gpu::DeviceBatch::Outside prompts = device->take_outside();
  EXPECT_EQ(prompts.steps, 0u);
  EXPECT_EQ(prompts.per_step(7), 0);
  for (int i = 0; i < 5; ++i) device->step();
  const gpu::DeviceBatch::Outside seen = device->take_outside();
  EXPECT_EQ(seen.steps, 5u);
  EXPECT_GT(seen.hit_rate().value(), 0);
  EXPECT_LT(seen.hit_rate().value(), 1);
  device->step();
  EXPECT_EQ(device->take_outside().steps, 1u);
}

// Limits that were given are bad input; nothing of the cache was reserved when they are refused. (The
// workspace of products comes before it.)
TEST_F(Offloaded, SmallLimitsAreRefusedBeforeAnythingIsReserved) {
  for (const char* recipe : {"quire,place=host(size=1000)", "quire,place=host(cache=1000)"}) {
    cuda::refuse_allocation(1);
    try {
      batch(options(recipe, 2, 2000));
      ADD_FAILURE() << recipe;
    } catch (const DeviceError& error) {
      ADD_FAILURE() << recipe << ": " << error.what();
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(recipe[17] == 's' ? "size=" : "cache="), std::string::npos)
          << error.what();
    }
    cuda::refuse_allocation(-1);
    EXPECT_EQ(cuda::pinned_bytes(), 0u);
  }
}

TEST_F(Offloaded, BudgetsHold) {
  int n_refused = 0;
  uint64_t previous = 0;
  for (uint64_t budget = 4'000'000; budget <= 128'000'000; budget *= 2) {
    gpu::BatchOptions with = options("quire,place=host", 2, 2000);
    with.budget_bytes = budget;
    try {
      const auto device = batch(with);
      EXPECT_LE(device->cache_memory_bytes(), budget);
      EXPECT_GE(device->cache_memory_bytes(), previous);
      previous = device->cache_memory_bytes();
      device->prefill(0, text(0, 1500));
      device->prefill(1, text(0, 1500));
      for (int i = 0; i < 3; ++i) device->step();
      device->wait();
      EXPECT_EQ(device->cache_memory_bytes(), previous);
    } catch (const DeviceError&) {
      throw;
    } catch (const Error& error) {
      ++n_refused;
      EXPECT_NE(std::string(error.what()).find(std::to_string(budget)), std::string::npos) << error.what();
    }
  }
  EXPECT_GT(n_refused, 0);
  EXPECT_GT(previous, 0u);
}

// Heads of 128 values and the shape of a large model; rows and weights are random.
TEST_F(Offloaded, LargeHeadsToo) {
  const gpu::DeviceModel large = gpu::DeviceModel::random("llama-3.1-8b", 5, 0);
  const Geometry geometry = large.config().geometry();
  const size_t n = 32 * 8 * 128;
  auto plain = std::make_shared<Calibration>();
  *plain = {geometry, std::vector<float>(n, 0), std::vector<float>(n, 1), std::vector<float>(n, 0),
            std::vector<float>(n, 1)};
  const auto logits = [&](const std::string& recipe) {
    gpu::DeviceBatch device(large, options(recipe, 1, 20100), {plain});
    device.fill_random(0, 20000, 9);
    std::vector<std::vector<float>> all;
    for (int32_t i = 0; i < 70; ++i) {
      device.set_token(0, 1000 * i);
      device.step();
      device.take_tokens();
      all.push_back(device.logits(0));
    }
    print(recipe, device.take_outside());
    return all;
  };
  for (const std::string recipe :
       {"quire", "k=nested4,v=nested4,select=sign(budget=2048)", "selfindex(budget=2048)"}) {
    const auto expected = logits(recipe);
    EXPECT_EQ(logits(recipe + ",place=host"), expected) << recipe;
    EXPECT_EQ(logits(recipe + ",place=host(cache=8M)"), expected) << recipe;
  }
}

}  // namespace
}  // namespace quire::test
