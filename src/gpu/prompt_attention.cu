// A block takes 64 queries of one head, each of four warps 16 of them; keys and values come by 64 into shared
// memory, the next ones while these are worked with. Scores and outputs stay in registers, with the running
// maximum and sum of a row (arXiv 2205.14135).
#include "gpu/prompt_attention.h"

#include <math_constants.h>

#include "kernels/cuda/device/launch_attention.cuh"
#include "kernels/cuda/device/score_cap.cuh"

namespace quire::gpu {

namespace {

using cuda::kAllLanes;

constexpr int kWarps = 4;
constexpr int kThreads = 32 * kWarps;
constexpr int kQueries = 16 * kWarps;
constexpr int kKeys = 64;
constexpr int kStages = 2;
constexpr float kLog2E = 1.44269504f;

template <int kDim>
struct Tile {
  static constexpr int kStride = kDim + 8;  // rows begin in different banks
  static constexpr int kNumbers = kKeys * kStride;
  static constexpr int kBytes = 2 * kNumbers * kStages * (int)sizeof(uint16_t);
};

__device__ __forceinline__ uint16_t* shared_numbers() {
  return reinterpret_cast<uint16_t*>(cuda::shared_memory());
}

// Rows `begin` .. of keys or values; those before `first` and from `end` on are zeros.
template <int kDim>
__device__ __forceinline__ void load_tile(const uint16_t* from, int begin, int first, int end, uint16_t* to) {
  constexpr int kParts = kDim / 8;
  for (int i = (int)threadIdx.x; i < kKeys * kParts; i += kThreads) {
    const int row = i / kParts;
    const int part = i % kParts;
    const bool there = begin + row >= first && begin + row < end;
    cuda::copy_ahead(cuda::shared_address(to + row * Tile<kDim>::kStride + 8 * part),
                     from + (int64_t)(there ? begin + row : first) * kDim + 8 * part, there ? 16 : 0);
  }
}

template <class T, int kDim>
struct Rows {
  uint32_t queries[kDim / 16][4];
  float outputs[kDim / 8][4];
  float top[2];  // of rows g and g + 8
  float sum[2];
};

template <class T, int kDim>
__device__ __forceinline__ void load_queries(const PromptAttention& a, int head, int row,
                                             Rows<T, kDim>& rows) {
  const int c = cuda::lane_index() % 4;
  const auto at = [&](int r, int d) -> uint32_t {
    if (r >= a.n) return 0;
    return *reinterpret_cast<const uint32_t*>(a.queries + ((int64_t)r * a.n_heads + head) * kDim + d);
  };
#pragma unroll
  for (int i = 0; i < kDim / 16; ++i) {
    rows.queries[i][0] = at(row, 16 * i + 2 * c);
    rows.queries[i][1] = at(row + 8, 16 * i + 2 * c);
    rows.queries[i][2] = at(row, 16 * i + 2 * c + 8);
    rows.queries[i][3] = at(row + 8, 16 * i + 2 * c + 8);
  }
#pragma unroll
  for (int i = 0; i < kDim / 8; ++i) {
    for (int j = 0; j < 4; ++j) rows.outputs[i][j] = 0;
  }
  rows.top[0] = rows.top[1] = -CUDART_INF_F;
  rows.sum[0] = rows.sum[1] = 0;
}

template <class T, int kDim>
__device__ __forceinline__ void score_tile(const Rows<T, kDim>& rows, const uint16_t* keys,
                                           float (&scores)[kKeys / 8][4]) {
  const int lane = cuda::lane_index();
  const uint32_t base =
      cuda::shared_address(keys + (lane / 16 * 8 + lane % 8) * Tile<kDim>::kStride + lane / 8 % 2 * 8);
#pragma unroll
  for (int tile = 0; tile < kKeys / 8; tile += 2) {
    for (int j = 0; j < 4; ++j) scores[tile][j] = scores[tile + 1][j] = 0;
#pragma unroll
    for (int i = 0; i < kDim / 16; ++i) {
      uint32_t m[4];
      cuda::load_matrices(m, base + 2 * (tile * 8 * Tile<kDim>::kStride + 16 * i));
      cuda::multiply_add(T{}, scores[tile], rows.queries[i], {m[0], m[1]});
      cuda::multiply_add(T{}, scores[tile + 1], rows.queries[i], {m[2], m[3]});
    }
  }
}

// Scores to weights, against the rows' new maxima. Row g is at `position`: it sees keys up to there, and of
// these those of its window.
template <class T, int kDim>
__device__ __forceinline__ void weigh(const PromptAttention& a, Rows<T, kDim>& rows,
                                      float (&scores)[kKeys / 8][4], int first_key, int position) {
  const int c = cuda::lane_index() % 4;
  const float scale = a.scale * kLog2E;
  const float cap = a.score_cap * kLog2E;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float top = rows.top[half];
    const int last_seen = position + 8 * half;
    const int first_seen = a.window > 0 ? last_seen - a.window + 1 : 0;
    for (int tile = 0; tile < kKeys / 8; ++tile) {
      for (int j = 0; j < 2; ++j) {
        float& s = scores[tile][2 * half + j];
        const int key = first_key + 8 * tile + 2 * c + j;
        s *= scale;
        if (cap > 0) s = cuda::capped(s, cap);
        if (key > last_seen || key < first_seen) s = -CUDART_INF_F;
        top = fmaxf(top, s);
      }
    }
    top = fmaxf(top, __shfl_xor_sync(kAllLanes, top, 1));
    top = fmaxf(top, __shfl_xor_sync(kAllLanes, top, 2));
    const float from = top == -CUDART_INF_F ? 0 : top;
    const float shrink = cuda::power_of_two(rows.top[half] - from);
    rows.top[half] = top;
    float sum = 0;
    for (int tile = 0; tile < kKeys / 8; ++tile) {
      for (int j = 0; j < 2; ++j) {
        float& s = scores[tile][2 * half + j];
        s = cuda::power_of_two(s - from);
        sum += s;
      }
    }
    rows.sum[half] = rows.sum[half] * shrink + sum;
#pragma unroll
    for (int i = 0; i < kDim / 8; ++i) {
      rows.outputs[i][2 * half] *= shrink;
      rows.outputs[i][2 * half + 1] *= shrink;
    }
  }
}

template <class T, int kDim>
__device__ __forceinline__ void add_values(Rows<T, kDim>& rows, const float (&weights)[kKeys / 8][4],
                                           const uint16_t* values) {
  const int lane = cuda::lane_index();
  const uint32_t base =
      cuda::shared_address(values + (lane / 8 % 2 * 8 + lane % 8) * Tile<kDim>::kStride + lane / 16 * 8);
#pragma unroll
  for (int tile = 0; tile < kKeys / 8; tile += 2) {
    const uint32_t w[4] = {cuda::pack(T{}, weights[tile][0], weights[tile][1]),
                           cuda::pack(T{}, weights[tile][2], weights[tile][3]),
                           cuda::pack(T{}, weights[tile + 1][0], weights[tile + 1][1]),
                           cuda::pack(T{}, weights[tile + 1][2], weights[tile + 1][3])};
#pragma unroll
    for (int i = 0; i < kDim / 8; i += 2) {
      uint32_t m[4];
      cuda::load_transposed_matrices(m, base + 2 * (tile * 8 * Tile<kDim>::kStride + 8 * i));
      cuda::multiply_add(T{}, rows.outputs[i], w, {m[0], m[1]});
      cuda::multiply_add(T{}, rows.outputs[i + 1], w, {m[2], m[3]});
    }
  }
}

template <class T, int kDim>
__device__ __forceinline__ void store_outputs(const PromptAttention& a, int head, int row,
                                              Rows<T, kDim>& rows) {
  const int c = cuda::lane_index() % 4;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float sum = rows.sum[half];
    sum += __shfl_xor_sync(kAllLanes, sum, 1);
    sum += __shfl_xor_sync(kAllLanes, sum, 2);
    const int r = row + 8 * half;
    if (r >= a.n) continue;
    auto* to = reinterpret_cast<uint32_t*>(a.out + ((int64_t)r * a.n_heads + head) * kDim + 2 * c);
#pragma unroll
    for (int i = 0; i < kDim / 8; ++i) {
      to[4 * i] =
          cuda::pack(__nv_bfloat16{}, rows.outputs[i][2 * half] / sum, rows.outputs[i][2 * half + 1] / sum);
    }
  }
}

template <class T, int kDim>
__global__ void __launch_bounds__(kThreads) prompt_kernel(const __grid_constant__ PromptAttention a) {
  // Blocks with most keys begin first.
  const int begin = (int)(gridDim.x - 1 - blockIdx.x) * kQueries;
  const int head = (int)blockIdx.y;
  const int64_t head_at = (int64_t)(head / (a.n_heads / a.n_kv_heads)) * a.stride * kDim;
  const int n_keys = a.first + min(begin + kQueries, a.n);
  const int n_tiles = (n_keys + kKeys - 1) / kKeys;
  const int first_key = a.window > 0 ? max(0, a.first + begin - a.window + 1) : 0;
  const int row = begin + 16 * cuda::warp_index() + cuda::lane_index() / 4;
  uint16_t* stages = shared_numbers();
  const auto load = [&](int tile) {
    if (tile < n_tiles) {
      uint16_t* to = stages + tile % kStages * 2 * Tile<kDim>::kNumbers;
      load_tile<kDim>(a.keys + head_at, tile * kKeys, first_key, n_keys, to);
      load_tile<kDim>(a.values + head_at, tile * kKeys, first_key, n_keys, to + Tile<kDim>::kNumbers);
    }
    cuda::close_group();
  };
  Rows<T, kDim> rows;
  load(first_key / kKeys);
  load_queries(a, head, row, rows);
  for (int tile = first_key / kKeys; tile < n_tiles; ++tile) {
    load(tile + 1);
    cuda::wait_for_groups<1>();
    __syncthreads();
    const uint16_t* keys = stages + tile % kStages * 2 * Tile<kDim>::kNumbers;
    float scores[kKeys / 8][4];
    score_tile<T, kDim>(rows, keys, scores);
    weigh<T, kDim>(a, rows, scores, tile * kKeys, a.first + row);
    add_values<T, kDim>(rows, scores, keys + Tile<kDim>::kNumbers);
    __syncthreads();
  }
  store_outputs(a, head, row, rows);
}

template <class T, int kDim>
void launch(const PromptAttention& a, cuda::Stream stream) {
  const auto kernel = prompt_kernel<T, kDim>;
  cuda::check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Tile<kDim>::kBytes),
              "reserving shared memory");
  const dim3 grid(static_cast<unsigned>((a.n + kQueries - 1) / kQueries), static_cast<unsigned>(a.n_heads));
  kernel<<<grid, kThreads, Tile<kDim>::kBytes, stream>>>(a);
  cuda::check(cudaGetLastError(), "launching a prompt's attention");
}

}  // namespace

void attend_prompt(const PromptAttention& attention, cuda::Stream stream) {
  cuda::visit_head_dim(attention.head_dim, [&](auto head_dim) {
    if (attention.format == Format::kF16) {
      launch<__half, head_dim()>(attention, stream);
    } else {
      launch<__nv_bfloat16, head_dim()>(attention, stream);
    }
  });
}

}  // namespace quire::gpu
