#include "kernels/cuda/page_bounds.h"

#include <math_constants.h>

#include <algorithm>
#include <string>

#include "kernels/cuda/check.cuh"
#include "kernels/cuda/device/block_sum.cuh"
#include "kernels/cuda/device/exact_number.cuh"
#include "kernels/cuda/device/page_choice.h"

namespace quire::cuda {

namespace {

constexpr int kPageRows = 64;
constexpr int kScoreWarps = 8;
constexpr int kScoredPages = 64;  // of a block
constexpr int kChoosers = 1024;   // threads of a block that chooses
constexpr int kMostQueryBytes = 48 * 1024;

__device__ __forceinline__ const uint8_t* head_of(const RowPlane& plane, int64_t page, int kv_head) {
  return plane.data + page * plane.page_stride + kv_head * plane.head_stride;
}

// A thread a channel.
__device__ void bound_page(const ShortPages& p, int64_t page, int kv_head, int within) {
  const int d = (int)threadIdx.x;
  if (d >= p.head_dim) return;
  const auto* keys = reinterpret_cast<const uint16_t*>(head_of(p.keys, page, kv_head)) +
                     within * p.page_tokens * p.head_dim + d;
  uint16_t largest = keys[0];
  uint16_t least = keys[0];
  for (int t = 1; t < p.page_tokens; ++t) {
    const uint16_t key = keys[t * p.head_dim];
    const float x = exact_number(key, p.format);
    if (x >= exact_number(largest, p.format)) largest = key;
    if (x < exact_number(least, p.format)) least = key;
  }
  auto* bounds = reinterpret_cast<uint16_t*>(const_cast<uint8_t*>(head_of(p.bounds, page, kv_head))) +
                 within * 2 * p.head_dim;
  bounds[d] = largest;
  bounds[p.head_dim + d] = least;
}

__global__ void bound_kernel(ShortPages p, const int32_t* table) {
  const int per_page = kPageRows / p.page_tokens;
  const int i = (int)blockIdx.x;
  bound_page(p, table[i / per_page], (int)blockIdx.y, i % per_page);
}

__global__ void bound_last_kernel(ShortPages p) {
  const int sequence = (int)blockIdx.x;
  const int n = p.n_tokens[sequence];
  if (n == 0 || n % p.page_tokens != 0) return;
  const int i = n / p.page_tokens - 1;
  const int per_page = kPageRows / p.page_tokens;
  bound_page(p, p.page_table[(int64_t)sequence * p.page_table_stride + i / per_page], (int)blockIdx.y,
             i % per_page);
}

// [pair][group][most_short] scores of bounds; a warp a short page.
__global__ void score_kernel(ShortPages p, const float* queries, float scale, PageBudget budget,
                             int most_short, float* scores) {
  extern __shared__ float own_queries[];  // [group][head_dim]
  const int sequence = (int)blockIdx.z;
  const int kv_head = (int)blockIdx.y;
  const PageChoice choice = page_choice(budget, p.page_tokens, p.n_tokens[sequence]);
  const int first = (int)blockIdx.x * kScoredPages;
  if (!choice.selects || first >= choice.last) return;
  const int64_t pair = (int64_t)sequence * p.n_kv_heads + kv_head;
  for (int i = (int)threadIdx.x; i < p.group * p.head_dim; i += (int)blockDim.x)
    own_queries[i] = queries[pair * p.group * p.head_dim + i] * scale;
  __syncthreads();
  const int per_page = kPageRows / p.page_tokens;
  const int32_t* table = p.page_table + (int64_t)sequence * p.page_table_stride;
  const int end = min(first + kScoredPages, choice.last);
  for (int i = first + warp_index(); i < end; i += kScoreWarps) {
    const auto* bounds = reinterpret_cast<const uint16_t*>(head_of(p.bounds, table[i / per_page], kv_head)) +
                         i % per_page * 2 * p.head_dim;
    float largest[8];
    float least[8];
#pragma unroll
    for (int k = 0; k < 8; ++k) {
      const int d = lane_index() + 32 * k;
      largest[k] = d < p.head_dim ? exact_number(bounds[d], p.format) : 0.0f;
      least[k] = d < p.head_dim ? exact_number(bounds[p.head_dim + d], p.format) : 0.0f;
    }
    for (int h = 0; h < p.group; ++h) {
      const float* q = own_queries + h * p.head_dim;
      float sum = 0.0f;
#pragma unroll
      for (int k = 0; k < 8; ++k) {
        const int d = lane_index() + 32 * k;
        if (d < p.head_dim) sum += fmaxf(q[d], 0.0f) * largest[k] + fminf(q[d], 0.0f) * least[k];
      }
      for (int lanes = 16; lanes > 0; lanes /= 2) sum += __shfl_xor_sync(kAllLanes, sum, lanes);
      if (lane_index() == 0) scores[(pair * p.group + h) * most_short + i] = sum;
    }
  }
}

// Over all threads; every one gets it.
template <class Join>
__device__ float joined(float x, Join join) {
  __shared__ float parts[32];
  for (int lanes = 16; lanes > 0; lanes /= 2) x = join(x, __shfl_xor_sync(kAllLanes, x, lanes));
  __syncthreads();  // parts of the last call are read
  if (lane_index() == 0) parts[warp_index()] = x;
  __syncthreads();
  x = parts[lane_index()];  // as many warps as lanes
  for (int lanes = 16; lanes > 0; lanes /= 2) x = join(x, __shfl_xor_sync(kAllLanes, x, lanes));
  return x;
}

// Rises with x; what is no number is least.
__device__ uint32_t rising(float x) {
  if (!(x > -CUDART_INF_F)) return 0;
  const uint32_t bits = __float_as_uint(x + 0.0f);
  return bits >> 31 != 0 ? ~bits : bits | 0x80000000u;
}

// The n-th highest of the keys, and how many of those equal to it are among the n highest.
struct Nth {
  uint32_t key;
  int n_equal;
};

__device__ Nth nth_highest(const uint32_t* keys, int n_keys, int n) {
  __shared__ int counts[256];
  __shared__ Nth found;
  uint32_t prefix = 0;
  for (int shift = 24; shift >= 0; shift -= 8) {
    if (threadIdx.x < 256) counts[threadIdx.x] = 0;
    __syncthreads();
    for (int i = (int)threadIdx.x; i < n_keys; i += kChoosers) {
      const uint32_t key = keys[i];
      if (shift == 24 || key >> (shift + 8) == prefix >> (shift + 8))
        atomicAdd(counts + (key >> shift & 255), 1);
    }
    __syncthreads();
    if (threadIdx.x == 0) {
      int digit = 255;
      for (; digit > 0 && counts[digit] < n; --digit) n -= counts[digit];
      found = {prefix | (uint32_t)digit << shift, n};
    }
    __syncthreads();
    prefix = found.key;
    n = found.n_equal;
    __syncthreads();
  }
  return {prefix, n};
}

struct UnitWriter {
  const ShortPages& p;
  const int32_t* table;
  int kv_head;
  int32_t* units;

  // Unit `i` of the sequence, counted from its first token, as entry `at`.
  __device__ void put(int at, int i) const {
    const int64_t bytes = (int64_t)2 * kUnitRows * p.head_dim;
    const int64_t page = table[i / (kPageRows / kUnitRows)];
    units[at] = (int32_t)((page * p.keys.page_stride + kv_head * p.keys.head_stride) / bytes) +
                i % (kPageRows / kUnitRows);
  }
  __device__ void put_page(int at, int page) const {
    const int n = p.page_tokens / kUnitRows;
    for (int k = 0; k < n; ++k) put(at * n + k, page * n + k);
  }
};

// A block a pair. keys: room for a number of each short page.
__global__ void __launch_bounds__(kChoosers)
    choose_kernel(ShortPages p, PageBudget budget, int most_short, const float* scores, uint32_t* keys,
                  ListedRows listed) {
  const int sequence = (int)blockIdx.y;
  const int kv_head = (int)blockIdx.x;
  const int64_t pair = (int64_t)sequence * p.n_kv_heads + kv_head;
  const int n_tokens = p.n_tokens[sequence];
  const PageChoice choice = page_choice(budget, p.page_tokens, n_tokens);
  const UnitWriter writer = {p, p.page_table + (int64_t)sequence * p.page_table_stride, kv_head,
                             listed.units + pair * listed.stride};
  if (!choice.selects) {
    for (int i = (int)threadIdx.x; i < (n_tokens + kUnitRows - 1) / kUnitRows; i += kChoosers)
      writer.put(i, i);
    if (threadIdx.x == 0) listed.n_rows[pair] = n_tokens;
    return;
  }
  __shared__ float log_sums[kMostGroup];
  const float* own = scores + pair * p.group * most_short;
  for (int h = 0; h < p.group; ++h) {
    float top = -CUDART_INF_F;
    for (int i = (int)threadIdx.x; i < choice.last; i += kChoosers) top = fmaxf(top, own[h * most_short + i]);
    top = joined(top, [](float a, float b) { return fmaxf(a, b); });
    float sum = 0.0f;
    for (int i = (int)threadIdx.x; i < choice.last; i += kChoosers)
      sum += expf(own[h * most_short + i] - top);
    sum = joined(sum, [](float a, float b) { return a + b; });
    if (threadIdx.x == 0) log_sums[h] = top + logf(sum);
  }
  __syncthreads();
  keys += pair * most_short;
  for (int i = (int)threadIdx.x; i < choice.last; i += kChoosers) {
    float best = -CUDART_INF_F;
    for (int h = 0; h < p.group; ++h) best = fmaxf(best, own[h * most_short + i] - log_sums[h]);
    keys[i] = rising(best);
  }
  __syncthreads();
  const Nth nth = nth_highest(keys, choice.last, choice.n_short - 1);
  int n_listed = 0;
  int n_equal = 0;
  // From the end, since of equal ones the later count.
  for (int end = choice.last; end > 0; end -= kChoosers) {
    const int i = end - kChoosers + (int)threadIdx.x;
    const uint32_t key = i >= 0 ? keys[i] : 0;
    const bool is_equal = key == nth.key && key != 0;
    const LaterSums equals = sums_of_later_threads(is_equal, 0);
    const bool chosen = key > nth.key || (is_equal && n_equal + equals.later.x < nth.n_equal);
    const LaterSums places = sums_of_later_threads(chosen, 0);
    if (chosen) writer.put_page(n_listed + places.later.x, i);
    n_listed += places.all.x;
    n_equal += equals.all.x;
  }
  if (threadIdx.x != 0) return;
  const int n_newest = n_tokens - choice.last * p.page_tokens;
  const int n = p.page_tokens / kUnitRows;
  for (int k = 0; k * kUnitRows < n_newest; ++k) writer.put(n_listed * n + k, choice.last * n + k);
  listed.n_rows[pair] = n_listed * p.page_tokens + n_newest;
}

void check_pages(const ShortPages& p) {
  if (!has_short_pages(p.page_tokens) || p.group < 1 || p.group > kMostGroup || !has_kernels(p.head_dim) ||
      p.group * p.head_dim * static_cast<int>(sizeof(float)) > kMostQueryBytes) {
    throw Error("no CUDA kernel for pages of " + std::to_string(p.page_tokens) + " tokens and groups of " +
                std::to_string(p.group) + " heads of " + std::to_string(p.head_dim) + " values");
  }
}

unsigned channels(const ShortPages& p) { return static_cast<unsigned>((p.head_dim + 31) / 32 * 32); }
unsigned count(int n) { return static_cast<unsigned>(n); }

// Bounded pages that there can be.
int most_short_pages(const ShortPages& p, int most_tokens) {
  return std::max(1, most_tokens / p.page_tokens);
}

}  // namespace

void bound_pages(const ShortPages& pages, const int32_t* table, int n, Stream stream) {
  check_pages(pages);
  if (n <= 0) return;
  bound_kernel<<<dim3(count(n), count(pages.n_kv_heads)), channels(pages), 0, stream>>>(pages, table);
  check(cudaGetLastError(), "bounding pages");
}

void bound_last_pages(const ShortPages& pages, Stream stream) {
  check_pages(pages);
  const dim3 grid(count(pages.n_sequences), count(pages.n_kv_heads));
  bound_last_kernel<<<grid, channels(pages), 0, stream>>>(pages);
  check(cudaGetLastError(), "bounding the last page");
}

size_t score_bytes(const ShortPages& pages, int most_tokens) {
  const auto n_pairs = static_cast<size_t>(pages.n_sequences) * static_cast<size_t>(pages.n_kv_heads);
  return n_pairs * static_cast<size_t>(pages.group + 1) *
         static_cast<size_t>(most_short_pages(pages, most_tokens)) * sizeof(float);
}

void choose_pages(const ShortPages& pages, const float* queries, float scale, const PageBudget& budget,
                  int most_tokens, void* scores, const ListedRows& listed, Stream stream) {
  check_pages(pages);
  const int most_short = most_short_pages(pages, most_tokens);
  const size_t n_scores = static_cast<size_t>(pages.n_sequences) * static_cast<size_t>(pages.n_kv_heads) *
                          static_cast<size_t>(pages.group) * static_cast<size_t>(most_short);
  auto* values = static_cast<float*>(scores);
  auto* keys = reinterpret_cast<uint32_t*>(values + n_scores);
  const dim3 grid(count((most_short + kScoredPages - 1) / kScoredPages), count(pages.n_kv_heads),
                  count(pages.n_sequences));
  const size_t query_bytes = static_cast<size_t>(pages.group * pages.head_dim) * sizeof(float);
  score_kernel<<<grid, 32 * kScoreWarps, query_bytes, stream>>>(pages, queries, scale, budget, most_short,
                                                                values);
  check(cudaGetLastError(), "scoring bounds");
  choose_kernel<<<dim3(count(pages.n_kv_heads), count(pages.n_sequences)), kChoosers, 0, stream>>>(
      pages, budget, most_short, values, keys, listed);
  check(cudaGetLastError(), "choosing pages");
}

}  // namespace quire::cuda
