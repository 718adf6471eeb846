// Caches whose codes are made of each sequence's own tokens: measured when its first pages are due, and kept
// with it.
#include <algorithm>
#include <vector>

#include "gpu/device_cache.h"
#include "gpu/handles.h"

namespace quire::gpu {

namespace {

constexpr int64_t kNumberBytes = 2;  // of exact rows

}  // namespace

// The rows are on the device, or in memory of the host.
cuda::SignVqPages DeviceCache::signvq_planes(int layer) const {
  const cuda::SparsePages planes = coded_planes(layer);
  return {planes.index, offloaded_ != nullptr ? offloaded_->rows(layer).records : planes.keys};
}

// From where the measuring left them.
void DeviceCache::put_kept_rows(int sequence, int layer, cuda::Stream stream) {
  const int page = pages_.sink_pages()[static_cast<size_t>(sequence)];
  auto* to = exact_page(page) + static_cast<size_t>(layer) * signs_.kept_bytes();
  cuda::check(cudaMemcpyAsync(to, signs_.kept_rows(), signs_.kept_bytes(), cudaMemcpyDeviceToDevice, stream),
              "copying rows that stay exact");
}

void DeviceCache::measure_rows(int sequence, int layer, const PromptRows& rows, int n, cuda::Stream stream) {
  if (!is_signvq() || pages_.coded_tokens(sequence) == 0) return;
  const HeadShape& h = shape_.heads;
  const int64_t page_bytes = kNumberBytes * kPageTokens * h.head_dim;
  const int64_t head_bytes = kNumberBytes * rows.stride * h.head_dim;
  const auto plane = [&](const uint16_t* side) {
    return cuda::RowPlane{reinterpret_cast<const uint8_t*>(side), page_bytes, head_bytes};
  };
  const int n_due = std::min(pages_.coded_tokens(sequence), n);
  signs_.measure(layer, sequence,
                 {recipe_.format, plane(rows.keys), plane(rows.values), iota_.as<int32_t>(), n, n_due},
                 rows.queries, stream);
  put_kept_rows(sequence, layer, stream);
}

void DeviceCache::seal_own_due(cuda::Stream stream) {
  bool changed = false;
  for (int sequence = 0; sequence < shape_.n_sequences; ++sequence) {
    if (!pages_.is_due(sequence)) continue;
    seal_own(sequence, stream);
    changed = true;
  }
  if (changed) send_tables(stream);
}

void DeviceCache::seal_own(int sequence, cuda::Stream stream) {
  const bool is_first = pages_.coded_tokens(sequence) == 0;
  const int n_tokens = pages_.n_tokens(sequence);
  // Of all exact pages: also those behind the ones that are due are measured.
  std::vector<int32_t> from(static_cast<size_t>(pages_.shape().exact_pages()));
  const auto stride = static_cast<std::ptrdiff_t>(from.size());
  std::copy_n(pages_.exact_table().begin() + sequence * stride, stride, from.begin());
  std::vector<int32_t> to;
  while (pages_.is_due(sequence)) to.push_back(pages_.seal(sequence).to);
  send(due_from_.as<void>(), from.data(), from.size() * sizeof(int32_t), stream);
  send(due_to_.as<void>(), to.data(), to.size() * sizeof(int32_t), stream);
  const int n_due = kPageTokens * static_cast<int>(to.size());
  for (int layer = 0; layer < shape_.n_layers; ++layer) {
    const ExactPages exact = exact_pages(layer);
    if (is_first) {
      signs_.measure(layer, sequence,
                     {recipe_.format, exact.keys, exact.values, due_from_.as<int32_t>(), n_tokens, n_due},
                     nullptr, stream);
    }
    seal_pages(layer, frames_of(layer, sequence), exact.keys, exact.values, due_from_.as<int32_t>(),
               due_to_.as<int32_t>(), static_cast<int>(to.size()), stream);
    if (is_first) put_kept_rows(sequence, layer, stream);
  }
}

void DeviceCache::fork(int from, int to, cuda::Stream stream) {
  if (windows_ != nullptr) windows_->fork(from, to, pages_.n_tokens(from), stream);
  if (is_signvq() && pages_.coded_tokens(from) > 0) signs_.fork(from, to, stream);
}

}  // namespace quire::gpu
