#include "gpu/offloaded_pages.h"

#include <algorithm>

#include "gpu/handles.h"

namespace quire::gpu {

namespace {

// At a time, of a sweep over all records.
constexpr uint64_t kSweepBytes = uint64_t{64} << 20;

}  // namespace

OffloadedPages::OffloadedPages(const OffloadShape& shape, const OffloadPlan& plan)
    : shape_(shape),
      plan_(plan),
      norms_(plan.norm_bytes),
      staged_(plan.staged_bytes),
      fetched_(plan.resident_bytes + plan.step_bytes),
      words_(plan.word_bytes),
      step_(sizeof(uint32_t)),
      counts_(sizeof(cuda::RecordCounts)),
      records_(plan.outside_bytes) {
  words_.fill(0xff);  // of no row
  step_.fill(0);
  counts_.fill(0);
}

uint64_t OffloadedPages::memory_bytes() const {
  uint64_t total = 0;
  for (const cuda::DeviceBuffer* buffer : {&norms_, &staged_, &fetched_, &words_, &step_, &counts_}) {
    total += buffer->size_bytes();
  }
  return total;
}

cuda::OffloadedRows OffloadedPages::rows(int layer) const {
  const auto record = static_cast<int64_t>(record_bytes());
  const int64_t norms = shape_.norm_bytes;
  const auto places = int64_t{shape_.n_sequences} * shape_.n_kv_heads * plan_.n_sets * cuda::kWays;
  return {{records_.data() + static_cast<uint64_t>(layer) * plan_.layer_bytes, 64 * record,
           shape_.coded_pages * 64 * record},
          {norms_.as<uint8_t>() + int64_t{layer} * shape_.coded_pages * shape_.n_kv_heads * norms,
           shape_.n_kv_heads * norms, norms},
          fetched_.as<uint8_t>() + layer * places * record,
          words_.as<uint32_t>() + layer * places,
          plan_.n_sets,
          step_.as<uint32_t>(),
          fetched_.as<uint8_t>() + plan_.resident_bytes,
          counts_.as<cuda::RecordCounts>()};
}

void OffloadedPages::forget(int sequence, cuda::Stream stream) {
  const size_t width = static_cast<size_t>(shape_.n_kv_heads) * plan_.n_sets * cuda::kWays * sizeof(uint32_t);
  const size_t pitch = width * static_cast<size_t>(shape_.n_sequences);
  cuda::check(cudaMemset2DAsync(words_.as<uint8_t>() + static_cast<size_t>(sequence) * width, pitch, 0xff,
                                width, static_cast<size_t>(shape_.n_layers), stream),
              "forgetting fetched rows");
}

OffloadedPages::Counts OffloadedPages::take_counts(cuda::Stream stream) {
  Counts counts{};
  uint32_t n_steps = 0;
  cuda::wait_for(stream);
  counts_.read(&counts.records, sizeof counts.records);
  step_.read(&n_steps, sizeof n_steps);
  counts.steps = n_steps - n_steps_taken_;
  n_steps_taken_ = n_steps;
  cuda::check(cudaMemsetAsync(counts_.as<void>(), 0, sizeof counts.records, stream), "counting anew");
  return counts;
}

double OffloadedPages::time_sweep(cuda::Stream stream) const {
  const cuda::DeviceBuffer to(std::min(kSweepBytes, plan_.outside_bytes));
  Event begin(cudaEventDefault);
  Event end(cudaEventDefault);
  begin.record(stream);
  for (uint64_t at = 0; at < plan_.outside_bytes; at += kSweepBytes) {
    cuda::check(
        cudaMemcpyAsync(to.as<void>(), records_.data() + at, std::min(kSweepBytes, plan_.outside_bytes - at),
                        cudaMemcpyHostToDevice, stream),
        "copying all rows");
  }
  end.record(stream);
  end.wait();
  return static_cast<double>(end.milliseconds_since(begin));
}

}  // namespace quire::gpu
