#include "gpu/offload_plan.h"

#include <algorithm>
#include <string>

#include "base/error.h"
#include "kernels/cuda/offloaded_rows.h"

namespace quire::gpu {

namespace {

uint64_t number(int64_t n) { return static_cast<uint64_t>(n); }

// A row is 24 bits of its word.
constexpr uint64_t kMostRows = cuda::kNoRow;

uint64_t resident_room(const OffloadLimits& limits, uint64_t budget_bytes, uint64_t taken,
                       uint64_t set_bytes) {
  const uint64_t asked = limits.cache_bytes > 0 ? limits.cache_bytes : UINT64_MAX;
  if (budget_bytes > 0) return std::min(asked, budget_bytes - taken);
  return limits.cache_bytes > 0 ? asked : std::max(kUsualCacheBytes, set_bytes);
}

}  // namespace

OffloadPlan plan_offload(const OffloadShape& s, const OffloadLimits& limits, uint64_t budget_bytes,
                         uint64_t other_bytes) {
  const uint64_t record = number(s.record_bytes);
  const uint64_t heads = number(s.n_kv_heads);
  const uint64_t pages = number(s.coded_pages);
  const uint64_t pairs = number(s.n_sequences) * heads;
  if (pages / number(s.n_sequences) * 64 >= kMostRows) {
    throw Error("a sequence with rows outside the CUDA device may have " + std::to_string(kMostRows - 1) +
                " of them at most");
  }
  OffloadPlan plan{};
  plan.layer_bytes = pages * heads * 64 * record;
  plan.outside_bytes = plan.layer_bytes * number(s.n_layers);
  if (limits.outside_bytes > 0 && plan.outside_bytes > limits.outside_bytes) {
    throw Error("rows outside the CUDA device take " + std::to_string(plan.outside_bytes) +
                " bytes, but size= allows " + std::to_string(limits.outside_bytes));
  }
  plan.norm_bytes = pages * heads * number(s.n_layers) * number(s.norm_bytes);
  plan.counter_bytes = sizeof(uint32_t) + sizeof(cuda::RecordCounts);
  plan.step_bytes = pairs * number(s.step_bytes);
  plan.staged_bytes = number(s.staged_bytes);
  const uint64_t set_bytes = cuda::kWays * (record + sizeof(uint32_t)) * pairs * number(s.n_layers);
  const uint64_t taken = other_bytes + plan.device_bytes();
  const uint64_t room =
      budget_bytes > 0 && taken > budget_bytes ? 0 : resident_room(limits, budget_bytes, taken, set_bytes);
  if (room < set_bytes) {
    throw Error("a cache with rows outside the CUDA device takes " + std::to_string(taken + set_bytes) +
                " bytes on it at least, " + std::to_string(set_bytes) + " of them for fetched rows, but " +
                (budget_bytes > 0 && budget_bytes < taken + set_bytes
                     ? "the budget is " + std::to_string(budget_bytes)
                     : "cache= allows these " + std::to_string(room)));
  }
  // With five places for four rows every row has one, as long as numbers of rows are those of a text
  // (tests/cuda/resident_set_test.cpp).
  const uint64_t rows = pages / number(s.n_sequences) * 64;
  const uint64_t most_sets = std::max<uint64_t>(1, (rows * 5 / 4 + cuda::kWays - 1) / cuda::kWays);
  plan.n_sets = static_cast<uint32_t>(std::min(room / set_bytes, most_sets));
  plan.resident_bytes = plan.n_sets * (set_bytes / (record + sizeof(uint32_t)) * record);
  plan.word_bytes = plan.n_sets * (set_bytes / (record + sizeof(uint32_t)) * sizeof(uint32_t));
  return plan;
}

}  // namespace quire::gpu
