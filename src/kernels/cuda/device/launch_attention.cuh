// Launches of decode_attention.cuh.
#pragma once

#include <string>

#include "kernels/cuda/check.cuh"
#include "kernels/cuda/device/decode_attention.cuh"

namespace quire::cuda {

// Shared memory of a Hopper multiprocessor that stages and tables may take.
constexpr int kPlannedBytes = 216 * 1024;

// Blocks that a launch may have for each multiprocessor.
constexpr int kMostBlocks = 2;

inline int head_tiles(int group) { return (group + kTileHeads - 1) / kTileHeads; }

// Counters come first, so that they lie alike for all head sizes.
inline size_t counter_bytes(int n_pairs) { return (4 * (size_t)n_pairs + 255) / 256 * 256; }

template <class Rows>
AttentionParams<Rows> attention_params(const DecodeAttention& a, const typename Rows::Tables& tables) {
  const int n_pairs = a.n_sequences * a.n_kv_heads * head_tiles(a.group);
  auto* memory = static_cast<uint8_t*>(a.workspace);
  return {a, tables, head_tiles(a.group), reinterpret_cast<int*>(memory),
          reinterpret_cast<float*>(memory + counter_bytes(n_pairs))};
}

template <class Rows>
struct LaunchShape {
  static constexpr int kStageBytes = Rows::kKeyStageBytes + Rows::kValueStageBytes;
  static constexpr int kFitting =
      (kPlannedBytes / Rows::kResidentBlocks - Rows::kTableBytes) / (Rows::kMostWarps * kStageBytes);
  static constexpr int kStages = kFitting < 1 ? 1 : kFitting > 6 ? 6 : kFitting;
  static constexpr int kWarpBytes = kStages * kStageBytes;
};

// As many warps as the device's shared memory has room for.
template <class Rows>
void launch_attention(const DecodeAttention& a, const typename Rows::Tables& tables, Stream stream) {
  using Shape = LaunchShape<Rows>;
  static_assert(Rows::kResidentBlocks <= kMostBlocks);
  const auto kernel = decode_attention<Rows, Shape::kStages>;
  int device = 0;
  int most_bytes = 0;
  cudaFuncAttributes attributes{};
  check(cudaGetDevice(&device), "asking for the device");
  check(cudaDeviceGetAttribute(&most_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device),
        "asking for its memory");
  check(cudaFuncGetAttributes(&attributes, kernel), "loading the attention kernel");
  const int room = most_bytes - (int)attributes.sharedSizeBytes - Rows::kTableBytes;
  const int n_warps = min(Rows::kMostWarps, room / Shape::kWarpBytes);
  if (n_warps < 1) throw Error("the CUDA device has too little shared memory for this head size");
  const int n_bytes = Rows::kTableBytes + n_warps * Shape::kWarpBytes;
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, n_bytes),
        "reserving shared memory");
  const AttentionParams<Rows> params = attention_params<Rows>(a, tables);
  kernel<<<block_count() * Rows::kResidentBlocks, 32 * n_warps, n_bytes, stream>>>(params);
  check(cudaGetLastError(), "launching attention");
}

// f(std::integral_constant<int, head_dim>) for a head size that kernels are built for.
template <class F>
void visit_head_dim(int head_dim, F&& f) {
  switch (head_dim) {
    case 64: return f(std::integral_constant<int, 64>{});
    case 80: return f(std::integral_constant<int, 80>{});
    case 96: return f(std::integral_constant<int, 96>{});
    case 128: return f(std::integral_constant<int, 128>{});
    case 256: return f(std::integral_constant<int, 256>{});
    default:
      throw Error("no CUDA kernel for heads of " + std::to_string(head_dim) +
                  " values (64, 80, 96, 128, 256)");
  }
}

inline void check_shape(const DecodeAttention& a) {
  if (a.n_sequences < 1 || a.n_sequences > kMaxSequences) {
    throw Error("a batch on the CUDA device has 1 to " + std::to_string(kMaxSequences) + " sequences, not " +
                std::to_string(a.n_sequences));
  }
}

}  // namespace quire::cuda
