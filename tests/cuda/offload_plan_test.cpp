#include "gpu/offload_plan.h"

#include <gtest/gtest.h>

#include <string>

#include "base/device_error.h"
#include "kernels/cuda/offloaded_rows.h"
#include "property/random.h"

namespace quire::test {
namespace {

using gpu::OffloadLimits;
using gpu::OffloadPlan;
using gpu::OffloadShape;

// Llama-3.1-8B's with 256K tokens.
constexpr OffloadShape kLarge = {
    32, 1, 8, 4096, cuda::record_bytes(4, 128), 0, cuda::record_step_bytes(4000), 256 * 8 * 9472};

TEST(OffloadPlanTest, CountsWhatThereIs) {
  EXPECT_EQ(cuda::record_bytes(4, 128), 128);
  EXPECT_EQ(cuda::record_bytes(4, 64), 64);
  EXPECT_EQ(cuda::record_value_offset(3, 96), 40);
  const OffloadPlan plan = gpu::plan_offload(kLarge, {}, 0, 0);
  EXPECT_EQ(plan.outside_bytes, 4096ull * 64 * 8 * 32 * 128);
  EXPECT_EQ(plan.layer_bytes * 32, plan.outside_bytes);
  EXPECT_EQ(plan.norm_bytes, 0u);
  EXPECT_LE(plan.resident_bytes + plan.word_bytes, gpu::kUsualCacheBytes);
  EXPECT_EQ(plan.resident_bytes / 128, plan.word_bytes / 4);
  OffloadShape even = kLarge;
  even.norm_bytes = cuda::value_norm_bytes(4);
  EXPECT_EQ(gpu::plan_offload(even, {}, 0, 0).norm_bytes, 4096ull * 64 * 8 * 32 * 2);
}

// Whatever the sizes: the budget holds, and what is left of it goes to fetched rows.
TEST(OffloadPlanTest, BudgetsAreNeverExceeded) {
  Random random(4);
  int n_refused = 0;
  for (int i = 0; i < 2000; ++i) {
    OffloadShape s = kLarge;
    s.n_layers = 1 + static_cast<int>(random.below(40));
    s.n_sequences = 1 + static_cast<int>(random.below(9));
    s.n_kv_heads = 1 + static_cast<int>(random.below(8));
    s.record_bytes = random.below(2) == 0 ? 64 : 128;
    s.norm_bytes = random.below(2) == 0 ? 0 : 128;
    s.coded_pages = s.n_sequences * static_cast<int>(random.below(3000));
    s.step_bytes = 64 + static_cast<int64_t>(random.below(2'000'000));
    const uint64_t other = random.below(uint64_t{1} << 30);
    const uint64_t budget = 1 + random.below(uint64_t{3} << 30);
    const OffloadLimits limits = {0, random.below(2) == 0 ? 0 : 1 + random.below(uint64_t{1} << 30)};
    try {
      const OffloadPlan plan = gpu::plan_offload(s, limits, budget, other);
      ASSERT_LE(other + plan.device_bytes(), budget);
      ASSERT_GE(plan.n_sets, 1u);
      const uint64_t resident = plan.resident_bytes + plan.word_bytes;
      if (limits.cache_bytes > 0) {
        ASSERT_LE(resident, limits.cache_bytes);
      }
      const uint64_t set = resident / plan.n_sets;
      const bool all_fits = plan.n_sets * uint64_t{cuda::kWays} + cuda::kWays >=
                            5 * 16 * static_cast<uint64_t>(s.coded_pages / s.n_sequences);
      if (limits.cache_bytes == 0 && !all_fits) {
        ASSERT_GT(other + plan.device_bytes() + set, budget);
      }
    } catch (const Error& error) {
      ++n_refused;
      ASSERT_NE(std::string(error.what()).find(" at least, "), std::string::npos) << error.what();
    }
  }
  EXPECT_GT(n_refused, 50);
  EXPECT_LT(n_refused, 1900);
}

std::string refusal(const OffloadShape& shape, const OffloadLimits& limits, uint64_t budget) {
  try {
    gpu::plan_offload(shape, limits, budget, 0);
  } catch (const DeviceError&) {
    return "not the device's fault";
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// Sentences name what was given, and nothing else.
TEST(OffloadPlanTest, BlamesWhatWasGiven) {
  OffloadShape many = kLarge;  // a set for each pair and layer takes more than is usual
  many.n_sequences = 256;
  many.n_kv_heads = 32;
  many.coded_pages = 256;
  EXPECT_EQ(refusal(many, {}, 0), "");
  EXPECT_EQ(gpu::plan_offload(many, {}, 0, 0).n_sets, 1u);
  EXPECT_GT(gpu::plan_offload(many, {}, 0, 0).resident_bytes, gpu::kUsualCacheBytes);
  EXPECT_NE(refusal(kLarge, {.cache_bytes = 1'000}, 0).find("cache= allows these 1000"), std::string::npos);
  EXPECT_NE(refusal(kLarge, {.cache_bytes = 1'000}, 1'000'000'000).find("cache= allows these 1000"),
            std::string::npos);
  EXPECT_NE(refusal(kLarge, {}, 1'000).find("the budget is 1000"), std::string::npos);
  EXPECT_NE(refusal(kLarge, {.cache_bytes = 1'000'000'000}, 1'000).find("the budget is 1000"),
            std::string::npos);
  EXPECT_NE(refusal(kLarge, {.outside_bytes = 1'000}, 0).find("size= allows 1000"), std::string::npos);
}

// With all the room there is it takes hardly more than the same rows on the device.
TEST(OffloadPlanTest, PlacesAreNotManyMoreThanRows) {
  const OffloadPlan plan = gpu::plan_offload(kLarge, {}, uint64_t{1} << 40, 0);
  EXPECT_GE(plan.resident_bytes, plan.outside_bytes * 5 / 4);
  EXPECT_LE(plan.resident_bytes, plan.outside_bytes * 13 / 10);
}

TEST(OffloadPlanTest, LimitsOfThePlaceHold) {
  EXPECT_THROW(gpu::plan_offload(kLarge, {.outside_bytes = 8'000'000'000}, 0, 0), Error);
  EXPECT_NO_THROW(gpu::plan_offload(kLarge, {.outside_bytes = 9'000'000'000}, 0, 0));
  EXPECT_THROW(gpu::plan_offload(kLarge, {.cache_bytes = 1'000}, 0, 0), Error);
  OffloadShape longest = kLarge;
  longest.coded_pages = 1 << 18;
  EXPECT_THROW(gpu::plan_offload(longest, {}, 0, 0), Error);
  longest.coded_pages = (1 << 18) - 1;
  EXPECT_NO_THROW(gpu::plan_offload(longest, {}, 0, 0));
}

}  // namespace
}  // namespace quire::test
