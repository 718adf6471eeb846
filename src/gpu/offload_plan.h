// How much of a cache whose rows lie outside the device is where: host logic.
#pragma once

#include <cstdint>

namespace quire::gpu {

struct OffloadShape {
  int n_layers;
  int n_sequences;
  int n_kv_heads;
  int coded_pages;       // of all sequences
  int record_bytes;      // of a row of one KV head, outside
  int norm_bytes;        // of a page of one KV head, on the device: of values whose rows have none
  int64_t step_bytes;    // of a (sequence, KV head), what a step notes or holds of the rows it fetches
  int64_t staged_bytes;  // pages that are coded together, on their way outside
};

// Limits of a recipe's place, bytes; 0: none is named.
struct OffloadLimits {
  uint64_t outside_bytes = 0;
  uint64_t cache_bytes = 0;
};

struct OffloadPlan {
  uint64_t layer_bytes;    // of records of a layer, outside
  uint64_t outside_bytes;  // of all
  // On the device:
  uint64_t norm_bytes;    // of values
  uint64_t step_bytes;    // of steps, behind the records
  uint64_t staged_bytes;  // pages on their way outside
  uint32_t n_sets;  // of records of a pair and layer that are here as well (kernels/cuda/resident_set.h)
  uint64_t resident_bytes;
  uint64_t word_bytes;
  uint64_t counter_bytes;  // of steps, and of what they asked for
  uint64_t device_bytes() const {
    return norm_bytes + step_bytes + staged_bytes + resident_bytes + word_bytes + counter_bytes;
  }
};

// Bytes of fetched records where neither the place nor a budget says how many, unless a set for each pair and
// layer takes more.
constexpr uint64_t kUsualCacheBytes = uint64_t{256} << 20;

// budget_bytes: of everything of the cache on the device, of which other_bytes go for the rest; 0: no limit.
// Throws Error of one sentence, with the numbers, where limits that were given are too small: bad input, not
// a device that refuses. With an other_bytes and step_bytes that are too small, too, what it refuses is
// refused with the true ones as well.
OffloadPlan plan_offload(const OffloadShape& shape, const OffloadLimits& limits, uint64_t budget_bytes,
                         uint64_t other_bytes);

}  // namespace quire::gpu
