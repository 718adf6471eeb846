// What the caches of a batch keep of their sequences' own tokens where signvq codes are made of them
// (ADR 11), and how it is made. Internal to the library.
#pragma once

#include <cstdint>

#include "gpu/step_kernels.h"
#include "kernels/cuda/device_buffer.h"
#include "kernels/cuda/signvq_statistics.h"

namespace quire::gpu {

// Nothing is coded before a sequence has so many tokens (cache/prompt_statistics.h).
constexpr int kStatisticsTokens = 512;

class SignVqState {
 public:
  SignVqState() = default;
  SignVqState(const HeadShape& heads, int n_layers, int n_sequences, int most_tokens, int n_kept);

  uint64_t memory_bytes() const;
  // Of a state made of these.
  static uint64_t memory_bytes(const HeadShape& heads, int n_layers, int n_sequences, int most_tokens);
  int n_kept() const { return n_kept_; }
  // Of a layer, all sequences.
  cuda::SignVqStatistics statistics(int layer) const;
  // [n_sequences][n_kv_heads][head_dim], where steps leave their mean queries.
  float* mean_queries(int layer) const;
  cuda::FramePlane key_frame(int layer, int sequence) const;

  // Exact rows of a layer of one sequence: n_tokens in all, of which the first n_due are coded. Leaves the
  // rows that stay exact in kept_rows(). The queries are those of mean_queries(), or [n_heads][head_dim].
  struct Rows {
    Format format;
    cuda::RowPlane keys;
    cuda::RowPlane values;
    const int32_t* pages;
    int n_tokens;
    int n_due;
  };
  void measure(int layer, int sequence, const Rows& rows, const uint16_t* queries, cuda::Stream stream);
  // [n_kv_heads][keys, values][64][head_dim] of the layer measured last, in the format of its rows.
  const void* kept_rows() const { return kept_rows_.as<void>(); }
  size_t kept_bytes() const { return kept_rows_.size_bytes(); }

  void fork(int from, int to, cuda::Stream stream);

 private:
  // Sizes alone.
  SignVqState(const HeadShape& heads, int n_layers, int n_sequences)
      : heads_(heads), n_layers_(n_layers), n_sequences_(n_sequences) {}
  size_t wanted_kept_bytes() const { return 2 * 2 * cuda::kMostKeptRows * channels(); }
  // Numbers of a sequence and layer.
  size_t channels() const {
    return static_cast<size_t>(heads_.n_kv_heads) * static_cast<size_t>(heads_.head_dim);
  }
  size_t words() const { return channels() / 4 * 64; }
  size_t positions() const { return static_cast<size_t>(heads_.n_kv_heads) * cuda::kMostKeptRows; }
  size_t place(int layer, int sequence) const {
    return static_cast<size_t>(layer) * static_cast<size_t>(n_sequences_) + static_cast<size_t>(sequence);
  }

  HeadShape heads_{};
  int n_layers_ = 0;
  int n_sequences_ = 0;
  int n_kept_ = 0;
  cuda::DeviceBuffer means_, balances_, codebooks_, positions_, queries_;  // [layer][sequence] of each
  cuda::DeviceBuffer workspace_, kept_rows_;
};

}  // namespace quire::gpu
