#include "kernels/cuda/attention.h"

#include "kernels/cuda/device/launch_turbo.cuh"

#include "kernels/cuda/codebook_of.h"

namespace quire::cuda {

int block_count() {
  int device = 0;
  int n_multiprocessors = 0;
  check(cudaGetDevice(&device), "asking for the device");
  check(cudaDeviceGetAttribute(&n_multiprocessors, cudaDevAttrMultiProcessorCount, device),
        "asking for its multiprocessors");
  return n_multiprocessors;
}

size_t workspace_bytes(int n_sequences, int n_kv_heads, int group, int head_dim, int n_blocks) {
  const int n_pairs = n_sequences * n_kv_heads * head_tiles(group);
  const auto n_states = static_cast<size_t>(state_count(n_blocks * kMostBlocks, n_pairs));
  return counter_bytes(n_pairs) + n_states * kTileHeads * (static_cast<size_t>(head_dim) + 2) * sizeof(float);
}

namespace {

// Centroids by rank, as format/turbo_panel.h orders them.
template <int kBits>
void put_centroids(int head_dim, uint16_t* centroids) {
  const Codebook& book = codebook_of<TurboPanel<kBits>>(head_dim);
  for (int rank = 0; rank < 1 << kBits; ++rank) {
    centroids[rank] = f32_to_f16(TurboPanel<kBits>::centroid(book, rank));
  }
}

void put_centroids(int bits, int head_dim, uint16_t* centroids) {
  switch (bits) {
    case 2: return put_centroids<2>(head_dim, centroids);
    case 3: return put_centroids<3>(head_dim, centroids);
    default: return put_centroids<4>(head_dim, centroids);
  }
}

}  // namespace

void attend_turbo(const DecodeAttention& attention, int key_bits, int value_bits, Stream stream) {
  check_shape(attention);
  const bool one_less = value_bits == key_bits - 1 && value_bits >= 2;
  if (key_bits < 2 || key_bits > 4 || (value_bits != key_bits && !one_less)) {
    throw Error("no CUDA kernel for keys of " + std::to_string(key_bits) + " bits with values of " +
                std::to_string(value_bits));
  }
  TurboTables tables{};
  put_centroids(key_bits, attention.head_dim, tables.keys);
  put_centroids(value_bits, attention.head_dim, tables.values);
  switch (key_bits) {
    case 2: return attend_turbo2(attention, tables, stream);
    case 3: return attend_turbo3(attention, value_bits, tables, stream);
    default: return attend_turbo4(attention, value_bits, tables, stream);
  }
}

namespace {

__global__ void merge_outputs(float* out, float* log_sums, const float* other_out,
                              const float* other_log_sums, int head_dim) {
  const int head = (int)blockIdx.x;
  const float a = log_sums[head];
  const float b = other_log_sums[head];
  const float top = fmaxf(a, b);
  __syncthreads();  // log_sums is read before it is written
  if (top == -CUDART_INF_F) return;
  const float weight_a = expf(a - top);
  const float weight_b = expf(b - top);
  const float sum = weight_a + weight_b;
  for (int dim = (int)threadIdx.x; dim < head_dim; dim += (int)blockDim.x) {
    const int64_t at = (int64_t)head * head_dim + dim;
    out[at] = (weight_a * out[at] + weight_b * other_out[at]) / sum;
  }
  if (threadIdx.x == 0) log_sums[head] = top + logf(sum);
}

}  // namespace

void merge_attention(float* out, float* log_sums, const float* other_out, const float* other_log_sums,
                     int n_heads, int head_dim, Stream stream) {
  merge_outputs<<<n_heads, 64, 0, stream>>>(out, log_sums, other_out, other_log_sums, head_dim);
  check(cudaGetLastError(), "merging attention");
}

}  // namespace quire::cuda
