#include "gpu/signvq_state.h"

#include "base/error.h"
#include "gpu/handles.h"

namespace quire::gpu {

SignVqState::SignVqState(const HeadShape& heads, int n_layers, int n_sequences, int most_tokens, int n_kept)
    : heads_(heads), n_layers_(n_layers), n_sequences_(n_sequences), n_kept_(n_kept) {
  const auto buffer = [&](size_t each) {
    return cuda::DeviceBuffer(static_cast<size_t>(n_layers) * static_cast<size_t>(n_sequences) * each * 4);
  };
  means_ = buffer(channels());
  balances_ = buffer(channels());
  codebooks_ = buffer(words());
  positions_ = buffer(positions());
  queries_ = buffer(channels());
  workspace_ = cuda::DeviceBuffer(cuda::measuring_bytes(heads.n_kv_heads, heads.head_dim, most_tokens));
  kept_rows_ = cuda::DeviceBuffer(wanted_kept_bytes());
  for (cuda::DeviceBuffer* all : {&means_, &balances_, &codebooks_, &positions_, &queries_, &kept_rows_})
    all->fill(0);
  QUIRE_CHECK(memory_bytes() == memory_bytes(heads, n_layers, n_sequences, most_tokens));
}

uint64_t SignVqState::memory_bytes() const {
  uint64_t total = 0;
  for (const cuda::DeviceBuffer* buffer :
       {&means_, &balances_, &codebooks_, &positions_, &queries_, &workspace_, &kept_rows_}) {
    total += buffer->size_bytes();
  }
  return total;
}

uint64_t SignVqState::memory_bytes(const HeadShape& heads, int n_layers, int n_sequences, int most_tokens) {
  const SignVqState sizes(heads, n_layers, n_sequences);
  const auto n_places = static_cast<uint64_t>(n_layers) * static_cast<uint64_t>(n_sequences);
  return 4 * n_places * (3 * sizes.channels() + sizes.words() + sizes.positions()) +
         cuda::measuring_bytes(heads.n_kv_heads, heads.head_dim, most_tokens) + sizes.wanted_kept_bytes();
}

cuda::SignVqStatistics SignVqState::statistics(int layer) const {
  const size_t at = place(layer, 0);
  return {means_.as<float>() + at * channels(), balances_.as<float>() + at * channels(),
          codebooks_.as<float>() + at * words(), positions_.as<int32_t>() + at * positions()};
}

float* SignVqState::mean_queries(int layer) const {
  return queries_.as<float>() + place(layer, 0) * channels();
}

cuda::FramePlane SignVqState::key_frame(int layer, int sequence) const {
  const size_t at = place(layer, sequence) * channels();
  return {means_.as<float>() + at, balances_.as<float>() + at, nullptr};
}

void SignVqState::measure(int layer, int sequence, const Rows& rows, const uint16_t* queries,
                          cuda::Stream stream) {
  const size_t at = place(layer, sequence);
  float* means = queries_.as<float>() + at * channels();
  if (queries != nullptr) {
    cuda::mean_queries(queries, rows.format, heads_.n_kv_heads, heads_.n_heads / heads_.n_kv_heads,
                       heads_.head_dim, means, stream);
  }
  const cuda::RowsToMeasure measured = {heads_.n_kv_heads, heads_.head_dim, rows.format,
                                        rows.keys,         rows.pages,      rows.n_tokens,
                                        rows.n_due,        n_kept_,         means};
  int32_t* kept = positions_.as<int32_t>() + at * positions();
  cuda::measure_signs(measured,
                      {means_.as<float>() + at * channels(), balances_.as<float>() + at * channels(),
                       codebooks_.as<float>() + at * words(), kept},
                      workspace_.as<void>(), stream);
  cuda::gather_kept(measured, rows.values, kept, kept_rows_.as<uint8_t>(), stream);
}

void SignVqState::fork(int from, int to, cuda::Stream stream) {
  const auto copy = [&](const cuda::DeviceBuffer& buffer, size_t each) {
    for (int layer = 0; layer < n_layers_; ++layer) {
      const auto* source = buffer.as<uint8_t>() + place(layer, from) * each * 4;
      auto* target = buffer.as<uint8_t>() + place(layer, to) * each * 4;
      cuda::check(cudaMemcpyAsync(target, source, each * 4, cudaMemcpyDeviceToDevice, stream),
                  "copying what a sequence is coded by");
    }
  };
  copy(means_, channels());
  copy(balances_, channels());
  copy(codebooks_, words());
  copy(positions_, positions());
}

}  // namespace quire::gpu
