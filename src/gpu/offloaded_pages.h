// Codes of the pages of a batch in pinned memory of the host, and those of them that are on the device as
// well. Internal to the library.
#pragma once

#include <cstdint>

#include "gpu/offload_plan.h"
#include "kernels/cuda/device_buffer.h"
#include "kernels/cuda/offloaded_rows.h"
#include "kernels/cuda/pinned_memory.h"

namespace quire::gpu {

// Rows of a layer and KV head lie together, [layer][kv_head][page][64]: what a thread block gathers from is
// then as little memory as can be, and translations of addresses, which cost more than the bytes, are few
// (docs/adr/0020).
class OffloadedPages {
 public:
  // Reserves everything. Throws DeviceError where the device or the host refuses.
  OffloadedPages(const OffloadShape& shape, const OffloadPlan& plan);

  const OffloadPlan& plan() const { return plan_; }
  uint64_t record_bytes() const { return static_cast<uint64_t>(shape_.record_bytes); }
  // On the device: the plan's device_bytes().
  uint64_t memory_bytes() const;
  // What launches for a layer read. The next step is counted by count_step().
  cuda::OffloadedRows rows(int layer) const;
  void count_step(cuda::Stream stream) { cuda::count_step(step_.as<uint32_t>(), stream); }
  // Where pages lie on their way outside.
  uint8_t* staged() const { return staged_.as<uint8_t>(); }
  // Nothing of a sequence is on the device any more. In the order of the stream.
  void forget(int sequence, cuda::Stream stream);

  struct Counts {
    cuda::RecordCounts records;
    uint32_t steps;  // of all sequences together
  };
  // Since the last call, or the start; waits for the stream.
  Counts take_counts(cuda::Stream stream);
  // Milliseconds that it takes to copy all records to the device once, by events.
  double time_sweep(cuda::Stream stream) const;

 private:
  OffloadShape shape_;
  OffloadPlan plan_;
  cuda::DeviceBuffer norms_, staged_, fetched_, words_, step_, counts_;
  cuda::PinnedMemory records_;
  uint32_t n_steps_taken_ = 0;  // into account by take_counts()
};

}  // namespace quire::gpu
