#include "gpu/moved_rows.h"

#include "kernels/cuda/check.cuh"
#include "kernels/cuda/device/exact_number.cuh"
#include "kernels/cuda/device/warp.cuh"

namespace quire::gpu {

namespace {

constexpr int kMovers = 128;
constexpr int kRowsPerPage = 64;
constexpr int kNumbersAtOnce = 8;  // 16 bytes

// A block a row of all KV heads.
__global__ void arrange_kernel(HeadShape s, PromptRows from, const int32_t* order, PromptRows to) {
  const int row = (int)blockIdx.x;
  const int64_t source = from.first + order[row];
  const int pieces = s.head_dim / kNumbersAtOnce;
  for (int i = (int)threadIdx.x; i < 2 * s.n_kv_heads * pieces; i += (int)blockDim.x) {
    const int kv_head = i / pieces % s.n_kv_heads;
    const bool is_key = i < s.n_kv_heads * pieces;
    const int at = i % pieces * kNumbersAtOnce;
    const uint16_t* source_row =
        (is_key ? from.keys : from.values) + ((int64_t)kv_head * from.stride + source) * s.head_dim;
    uint16_t* target_row =
        (is_key ? to.keys : to.values) + ((int64_t)kv_head * to.stride + to.first + row) * s.head_dim;
    *reinterpret_cast<uint4*>(target_row + at) = *reinterpret_cast<const uint4*>(source_row + at);
  }
}

// A block a row of all KV heads of a layer.
__global__ void move_kernel(HeadShape s, PagePoolRows pages, const RowMove* moves) {
  const RowMove move = moves[blockIdx.x];
  const int64_t side_bytes = (int64_t)2 * kRowsPerPage * s.head_dim;
  const int64_t layer_bytes = 2 * side_bytes * s.n_kv_heads;
  const int pieces = s.head_dim / kNumbersAtOnce;
  const auto row = [&](int number) {
    return pages.data + number / kRowsPerPage * pages.page_bytes + blockIdx.y * layer_bytes +
           (int64_t)(number % kRowsPerPage) * 2 * s.head_dim;
  };
  const uint8_t* from = row(move.from);
  uint8_t* to = row(move.to);
  for (int i = (int)threadIdx.x; i < 2 * s.n_kv_heads * pieces; i += (int)blockDim.x) {
    const int64_t at = i / pieces * side_bytes + i % pieces * 16;
    *reinterpret_cast<uint4*>(to + at) = *reinterpret_cast<const uint4*>(from + at);
  }
}

__global__ void turn_kernel(HeadShape s, const float* queries, Angles angles, float* turned) {
  const int row = (int)blockIdx.y;
  const int at = (int)(blockIdx.x * blockDim.x + threadIdx.x);
  if (at >= s.n_heads * s.head_dim) return;
  const int64_t first = (int64_t)row * s.n_heads * s.head_dim;
  const int d = at % s.head_dim;
  const float x = queries[first + at];
  if (d >= 2 * angles.half) {
    turned[first + at] = x;
    return;
  }
  const float c = angles.cosine[(int64_t)row * angles.half + d % angles.half];
  const float sine = angles.sine[(int64_t)row * angles.half + d % angles.half];
  const float y = queries[first + at + (d < angles.half ? angles.half : -angles.half)];
  turned[first + at] = d < angles.half ? x * c - y * sine : x * c + y * sine;
}

// A block a row of all KV heads.
__global__ void sinks_kernel(HeadShape s, ExactPages pages, const int32_t* table, int shift, Angles angles,
                             PromptRows to) {
  const int row = (int)blockIdx.x;
  const int64_t page = table[0];
  for (int i = (int)threadIdx.x; i < s.n_kv_heads * s.head_dim; i += (int)blockDim.x) {
    const int kv_head = i / s.head_dim;
    const int d = i % s.head_dim;
    const auto of = [&](const cuda::RowPlane& plane) {
      return reinterpret_cast<const uint16_t*>(plane.data + page * plane.page_stride +
                                               kv_head * plane.head_stride) +
             row * s.head_dim;
    };
    const int64_t target = ((int64_t)kv_head * to.stride + to.first + row) * s.head_dim + d;
    to.values[target] = of(pages.values)[d];
    const uint16_t* key = of(pages.keys);
    if (d >= 2 * angles.half) {
      to.keys[target] = key[d];
      continue;
    }
    double sine = 0;
    double cosine = 0;
    sincos((double)shift * angles.frequencies[d % angles.half], &sine, &cosine);
    const float x = cuda::exact_number(key[d], pages.format);
    const float y =
        cuda::exact_number(key[d < angles.half ? d + angles.half : d - angles.half], pages.format);
    const float side = d < angles.half ? -y : y;
    to.keys[target] = cuda::rounded_number(x * (float)cosine + side * (float)sine, pages.format);
  }
}

}  // namespace

void arrange_rows(const HeadShape& shape, const PromptRows& from, const int32_t* order, int n,
                  const PromptRows& to, cuda::Stream stream) {
  if (n <= 0) return;
  arrange_kernel<<<static_cast<unsigned>(n), kMovers, 0, stream>>>(shape, from, order, to);
  cuda::check(cudaGetLastError(), "arranging rows");
}

void move_rows(const HeadShape& shape, const PagePoolRows& pages, const RowMove* moves, int n,
               cuda::Stream stream) {
  if (n <= 0) return;
  const dim3 grid(static_cast<unsigned>(n), static_cast<unsigned>(pages.n_layers));
  move_kernel<<<grid, kMovers, 0, stream>>>(shape, pages, moves);
  cuda::check(cudaGetLastError(), "moving rows");
}

void turn_queries(const HeadShape& shape, const float* queries, int n, const Angles& angles, float* turned,
                  cuda::Stream stream) {
  const auto n_blocks = static_cast<unsigned>((shape.n_heads * shape.head_dim + kMovers - 1) / kMovers);
  turn_kernel<<<dim3(n_blocks, static_cast<unsigned>(n)), kMovers, 0, stream>>>(shape, queries, angles,
                                                                                turned);
  cuda::check(cudaGetLastError(), "turning queries to sinks");
}

void turn_sinks(const HeadShape& shape, const ExactPages& pages, const int32_t* table, int n_sinks, int shift,
                const Angles& angles, const PromptRows& to, cuda::Stream stream) {
  if (n_sinks <= 0) return;
  sinks_kernel<<<static_cast<unsigned>(n_sinks), kMovers, 0, stream>>>(shape, pages, table, shift, angles,
                                                                       to);
  cuda::check(cudaGetLastError(), "turning sinks");
}

}  // namespace quire::gpu
