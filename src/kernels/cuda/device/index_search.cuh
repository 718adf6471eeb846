// The search of index.h in three kernels: estimates of all rows and the sums of their probabilities; levels;
// marks.
#pragma once

#include <limits.h>

#include "kernels/cuda/device/partial_state.cuh"
#include "kernels/cuda/index.h"

namespace quire::cuda {

constexpr int kIndexWarps = 8;
constexpr int kPageRowCount = 64;
constexpr float kEstimateUnits = 128.0f;  // of an estimate to a factor of two in probability
constexpr int kUnitsOfLevel = 16;
constexpr int kLevels = 256;
constexpr int kMarkThreads = 1024;

// Where a search keeps what one kernel leaves for the next; `pair` = (sequence, KV head).
struct IndexWorkspace {
  int n_parts;         // blocks that share a pair
  int16_t* estimates;  // [pairs][page_table_stride][group][64]
  uint8_t* levels;     // [pairs][page_table_stride][64]
  float2* sums;        // [pairs][n_parts][kTileHeads] of probabilities (OctaveSum)
  int* counts;         // [pairs][kLevels] rows of each level
};

struct IndexParams {
  IndexSearch search;
  IndexWorkspace work;
};

__device__ __forceinline__ int pages_of(const IndexSearch& search, int pair) {
  return search.n_tokens[pair / search.n_kv_heads] / kPageRowCount;
}

// Bit j of bytes 1 and 3 as 1 or -1 in f16.
__device__ __forceinline__ uint32_t sign_pair(uint32_t bytes, int j) {
  return (bytes << (7 - j) & 0x80008000u) ^ 0xbc00bc00u;
}

// Signs are the left factor of a product on the tensor cores, with depth permuted as in turbo_rows.cuh: lane
// 4 g + c takes eight tokens, and of every 64 dims the eight from 8 c and the eight from 32 + 8 c on; a
// register holds dim j of either.
template <int kHeadDim>
struct SignTile {
  static constexpr int kBytes = kHeadDim / 8;
  static constexpr int kDepths = (kBytes + 7) / 8;
  static constexpr int kSteps = 4 * kDepths;

  static __device__ int token(int tile, int half, int g) {
    return 16 * (g / 2) + 4 * (g % 2) + 8 * (tile / 2) + 2 * (tile % 2) + half;
  }
  static __device__ int query_dim(int step, int c, int e) {
    return 64 * (step / 4) + 32 * (e % 2) + 8 * c + 2 * (step % 4) + e / 2;
  }

  // Four tokens from the first on; dims that a head does not have: any bits.
  static __device__ uint32_t load(const uint8_t* signs, int byte, int token) {
    return byte < kBytes ? *reinterpret_cast<const uint32_t*>(signs + byte * kPageRowCount + token) : 0;
  }

  static __device__ void score(const uint8_t* signs, const uint32_t (&q)[kSteps][2], float (&s)[4][4]) {
    const int g = lane_index() / 4;
    const int c = lane_index() % 4;
    uint32_t words[kDepths][2][2];  // [depth][eight][half of the tokens]
#pragma unroll
    for (int i = 0; i < 4 * kDepths; ++i) {
      words[i / 4][i / 2 % 2][i % 2] =
          load(signs, 8 * (i / 4) + 4 * (i / 2 % 2) + c, token(2 * (i % 2), 0, g));
    }
#pragma unroll
    for (int depth = 0; depth < kDepths; ++depth) {
#pragma unroll
      for (int tile = 0; tile < 4; ++tile) {
        const uint32_t first = words[depth][0][tile / 2];
        const uint32_t second = words[depth][1][tile / 2];
        // The tile's two tokens: bytes 1 and 3 of a register each.
        const uint32_t even = __byte_perm(first, second, tile % 2 == 0 ? 0x4400 : 0x6622);
        const uint32_t odd = __byte_perm(first, second, tile % 2 == 0 ? 0x5511 : 0x7733);
#pragma unroll
        for (int step = 0; step < 4; ++step) {
          const uint32_t a[4] = {sign_pair(even, 2 * step), sign_pair(odd, 2 * step),
                                 sign_pair(even, 2 * step + 1), sign_pair(odd, 2 * step + 1)};
          multiply_add(__half{}, s[tile], a, q[4 * depth + step]);
        }
      }
    }
  }
};

// As f16 near 1; returns what scores must be multiplied by for octaves, for heads 2 c and 2 c + 1.
template <int kHeadDim>
__device__ float2 load_index_queries(const IndexSearch& search, int pair,
                                     uint32_t (&q)[SignTile<kHeadDim>::kSteps][2]) {
  const int g = lane_index() / 4;
  const int c = lane_index() % 4;
  const float* x = search.queries + ((int64_t)pair * search.group + g) * kHeadDim;
  float numbers[SignTile<kHeadDim>::kSteps][4];
  float largest = 0.0f;
#pragma unroll
  for (int step = 0; step < SignTile<kHeadDim>::kSteps; ++step) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int dim = SignTile<kHeadDim>::query_dim(step, c, e);
      numbers[step][e] = g < search.group && dim < kHeadDim ? x[dim] : 0.0f;
      largest = fmaxf(largest, fabsf(numbers[step][e]));
    }
  }
  for (int lanes = 1; lanes < 4; lanes *= 2)
    largest = fmaxf(largest, __shfl_xor_sync(kAllLanes, largest, lanes));
  const int exponent = max(min((int)(__float_as_uint(largest) >> 23), 253), 1);
  const float down = __uint_as_float((unsigned)(254 - exponent) << 23);
#pragma unroll
  for (int step = 0; step < SignTile<kHeadDim>::kSteps; ++step) {
    q[step][0] = pack(__half{}, numbers[step][0] * down, numbers[step][1] * down);
    q[step][1] = pack(__half{}, numbers[step][2] * down, numbers[step][3] * down);
  }
  // A sign stands for the mean of what has that sign: sqrt(2 / (pi head_dim)) of the norm.
  const float mean = 0.7978845608028654f / sqrtf((float)kHeadDim);
  const float up = __uint_as_float((unsigned)exponent << 23) * mean * search.scale * 1.4426950408889634f;
  return {__shfl_sync(kAllLanes, up, 8 * c), __shfl_sync(kAllLanes, up, 8 * c + 4)};
}

__device__ __forceinline__ int16_t estimate_of(float octaves) {
  return (int16_t)__float2int_rn(fminf(fmaxf(octaves * kEstimateUnits, -32768.0f), 32767.0f));
}

// Sum of 2^x of what was seen, as a number near the largest x and the sum of 2^(x - that).
struct OctaveSum {
  float top = -INFINITY;
  float sum = 0.0f;

  // x [n]; the largest is raised only where something is well above it.
  template <int n>
  __device__ void add(const float (&x)[n]) {
    float highest = x[0];
#pragma unroll
    for (int i = 1; i < n; ++i) highest = fmaxf(highest, x[i]);
    if (highest > top + 8.0f) {
      sum *= power_of_two(top - highest);
      top = highest;
    }
    const float offset = top == -INFINITY ? 0.0f : top;
#pragma unroll
    for (int i = 0; i < n; ++i) sum += power_of_two(x[i] - offset);
  }
  __device__ void add(float other_top, float other_sum) {
    const float highest = fmaxf(top, other_top);
    if (highest == -CUDART_INF_F) return;
    sum = sum * power_of_two(top - highest) + other_sum * power_of_two(other_top - highest);
    top = highest;
  }
};

// Block (part, pair): its warps take pages in turn. Rows before first_token count for nothing in the sums.
template <int kHeadDim>
__global__ void __launch_bounds__(32 * kIndexWarps)
    estimate_rows(const __grid_constant__ IndexParams params) {
  __shared__ float2 sums[kIndexWarps][kTileHeads];
  const IndexSearch& search = params.search;
  const int pair = (int)blockIdx.y;
  const int sequence = pair / search.n_kv_heads;
  const int kv_head = pair % search.n_kv_heads;
  const int g = lane_index() / 4;
  const int c = lane_index() % 4;
  const int n_pages = pages_of(search, pair);
  if (blockIdx.x == 0 && threadIdx.x < kLevels) params.work.counts[pair * kLevels + threadIdx.x] = 0;
  uint32_t q[SignTile<kHeadDim>::kSteps][2];
  const float2 scale = load_index_queries<kHeadDim>(search, pair, q);
  OctaveSum seen[2];
  for (int page = (int)blockIdx.x * kIndexWarps + warp_index(); page < n_pages;
       page += (int)gridDim.x * kIndexWarps) {
    const int number = search.page_table[(int64_t)sequence * search.page_table_stride + page];
    const uint8_t* signs =
        search.signs.data + number * search.signs.page_stride + kv_head * search.signs.head_stride;
    const uint8_t* norms =
        search.norms.data + number * search.norms.page_stride + kv_head * search.norms.head_stride;
    float s[4][4] = {};
    SignTile<kHeadDim>::score(signs, q, s);
    int16_t* to = params.work.estimates +
                  ((int64_t)pair * search.page_table_stride + page) * search.group * kPageRowCount;
    float octaves[2][8];  // [head][token]
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int token = SignTile<kHeadDim>::token(2 * h, 0, g);
      const uint2 bits = search.norms.data == nullptr ? uint2{0x3c003c00u, 0x3c003c00u}
                                                      : *reinterpret_cast<const uint2*>(norms + 2 * token);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const uint32_t pair_of_norms = i < 2 ? bits.x : bits.y;
        const float norm = __half2float(__ushort_as_half((uint16_t)(pair_of_norms >> (i % 2 * 16))));
        octaves[0][4 * h + i] = s[2 * h + i / 2][2 * (i % 2)] * norm * scale.x;
        octaves[1][4 * h + i] = s[2 * h + i / 2][2 * (i % 2) + 1] * norm * scale.y;
      }
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const float* four = octaves[i] + 4 * h;
        const short4 units = {estimate_of(four[0]), estimate_of(four[1]), estimate_of(four[2]),
                              estimate_of(four[3])};
        if (2 * c + i < search.group)
          *reinterpret_cast<short4*>(to + (2 * c + i) * kPageRowCount + token) = units;
      }
    }
    if (page * kPageRowCount < search.first_token) {
#pragma unroll
      for (int i = 0; i < 16; ++i) {
        const int token = page * kPageRowCount + SignTile<kHeadDim>::token(2 * (i / 4 % 2), 0, g) + i % 4;
        if (token < search.first_token) octaves[i / 8][i % 8] = -INFINITY;
      }
    }
    seen[0].add(octaves[0]);
    seen[1].add(octaves[1]);
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    for (int lanes = 4; lanes < 32; lanes *= 2) {
      const float top = __shfl_xor_sync(kAllLanes, seen[i].top, lanes);
      seen[i].add(top, __shfl_xor_sync(kAllLanes, seen[i].sum, lanes));
    }
    if (g == 0) sums[warp_index()][2 * c + i] = {seen[i].top, seen[i].sum};
  }
  __syncthreads();
  if (threadIdx.x < kTileHeads) {
    OctaveSum all;
    for (int warp = 0; warp < kIndexWarps; ++warp)
      all.add(sums[warp][threadIdx.x].x, sums[warp][threadIdx.x].y);
    params.work.sums[((int64_t)pair * gridDim.x + blockIdx.x) * kTileHeads + threadIdx.x] = {all.top,
                                                                                             all.sum};
  }
}

// Block (part, pair): levels of two neighbouring rows a thread, and how many rows have each.
__global__ void __launch_bounds__(32 * kIndexWarps) level_rows(const __grid_constant__ IndexParams params) {
  __shared__ int offsets[kTileHeads];
  __shared__ int counts[kLevels];
  const IndexSearch& search = params.search;
  const int pair = (int)blockIdx.y;
  counts[threadIdx.x] = 0;
  if (warp_index() < search.group) {  // a warp a head
    OctaveSum all;
    for (int part = lane_index(); part < params.work.n_parts; part += 32) {
      const float2 sum =
          params.work.sums[((int64_t)pair * params.work.n_parts + part) * kTileHeads + warp_index()];
      all.add(sum.x, sum.y);
    }
    for (int lanes = 16; lanes > 0; lanes /= 2) {
      const float top = __shfl_xor_sync(kAllLanes, all.top, lanes);
      all.add(top, __shfl_xor_sync(kAllLanes, all.sum, lanes));
    }
    if (lane_index() == 0) {
      const float octaves = all.sum > 0.0f ? all.top + log2f(all.sum) : 0.0f;
      offsets[warp_index()] = __float2int_rn(fminf(fmaxf(octaves * kEstimateUnits, -65536.0f), 65536.0f));
    }
  }
  __syncthreads();
  const int n_rows = pages_of(search, pair) * kPageRowCount;
  const int64_t first_page = (int64_t)pair * search.page_table_stride;
  for (int row = 2 * ((int)blockIdx.x * (int)blockDim.x + (int)threadIdx.x); row < n_rows;
       row += 2 * (int)(gridDim.x * blockDim.x)) {
    const int64_t page = first_page + row / kPageRowCount;
    const int16_t* from = params.work.estimates + page * search.group * kPageRowCount + row % kPageRowCount;
    int best[2] = {-65536 * 2, -65536 * 2};
    for (int head = 0; head < search.group; ++head) {
      const short2 both = *reinterpret_cast<const short2*>(from + head * kPageRowCount);
      best[0] = max(best[0], both.x - offsets[head]);
      best[1] = max(best[1], both.y - offsets[head]);
    }
    uchar2 levels;
    levels.x = row < search.first_token ? 0 : (uint8_t)max(0, min(255, (best[0] >> 4) + 255));
    levels.y = row + 1 < search.first_token ? 0 : (uint8_t)max(0, min(255, (best[1] >> 4) + 255));
    *reinterpret_cast<uchar2*>(params.work.levels + page * kPageRowCount + row % kPageRowCount) = levels;
    atomicAdd(&counts[levels.x], 1);
    atomicAdd(&counts[levels.y], 1);
  }
  __syncthreads();
  const int n = counts[threadIdx.x];
  if (n > 0) atomicAdd(&params.work.counts[pair * kLevels + threadIdx.x], n);
}
static_assert(kUnitsOfLevel == 1 << 4 && kLevels == 32 * kIndexWarps);

// Which of 64 levels are at least `level` (1..255).
__device__ __forceinline__ uint64_t rows_at_least(const uint8_t* levels, int level) {
  const uint32_t wanted = (uint32_t)level * 0x01010101u;
  uint64_t rows = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const uint4 sixteen = reinterpret_cast<const uint4*>(levels)[i];
    const uint32_t four[4] = {sixteen.x, sixteen.y, sixteen.z, sixteen.w};
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      // One bit a byte; the product puts bit 8 k at 24 + k.
      const uint32_t ones = __vsetgeu4(four[j], wanted);
      rows |= (uint64_t)((ones * 0x01020408u) >> 24 & 15u) << (16 * i + 4 * j);
    }
  }
  return rows;
}

__device__ __forceinline__ int count_equal(const uint8_t* levels, int level) {
  const uint32_t wanted = (uint32_t)(level & 255) * 0x01010101u;
  int n = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const uint4 sixteen = reinterpret_cast<const uint4*>(levels)[i];
    n += __popc(__vcmpeq4(sixteen.x, wanted)) + __popc(__vcmpeq4(sixteen.y, wanted)) +
         __popc(__vcmpeq4(sixteen.z, wanted)) + __popc(__vcmpeq4(sixteen.w, wanted));
  }
  return n / 8;  // bits a byte
}

__device__ inline int sum_of_block(int n) {
  __shared__ int sums[32];
  n = __reduce_add_sync(kAllLanes, n);
  __syncthreads();
  if (lane_index() == 0) sums[warp_index()] = n;
  __syncthreads();
  return __reduce_add_sync(kAllLanes, sums[lane_index()]);
}

// Of n, what the threads behind this one have.
__device__ inline int sum_of_later_threads(int n) {
  __shared__ int sums[32];
  int later = n;
  for (int lanes = 1; lanes < 32; lanes *= 2) {
    const int other = __shfl_down_sync(kAllLanes, later, lanes);
    if (lane_index() + lanes < 32) later += other;
  }
  __syncthreads();
  if (lane_index() == 0) sums[warp_index()] = later;
  __syncthreads();
  const int of_later_warps =
      __reduce_add_sync(kAllLanes, lane_index() > warp_index() ? sums[lane_index()] : 0);
  return later - n + of_later_warps;
}

// Where rows stop to be marked: all above `level`, and of those at it so many.
struct MarkLimit {
  int level;
  int n_at_level;
};

// The first 256 threads hold a level each.
__device__ inline MarkLimit find_limit(const int* counts, int n_wanted) {
  __shared__ MarkLimit limit;
  const int level = (int)threadIdx.x;
  if (level == 0) limit = {1, INT_MAX};  // fewer rows than wanted
  const int n = level > 0 && level < kLevels ? counts[level] : 0;
  const int n_above = sum_of_later_threads(n);
  if (level < kLevels && n_above < n_wanted && n_above + n >= n_wanted) limit = {level, n_wanted - n_above};
  if (n_wanted <= 0 && level == 0) limit = {kLevels, 0};
  __syncthreads();
  return limit;
}

// A block a pair; each thread has pages that follow one another.
__global__ void __launch_bounds__(kMarkThreads) mark_rows(const __grid_constant__ IndexParams params) {
  const IndexSearch& search = params.search;
  const int pair = (int)blockIdx.x;
  const MarkLimit limit =
      find_limit(params.work.counts + pair * kLevels, search.n_wanted[pair / search.n_kv_heads]);
  const int n_pages = pages_of(search, pair);
  const int each = (n_pages + kMarkThreads - 1) / kMarkThreads;
  const int first = min((int)threadIdx.x * each, n_pages);
  const int end = min(first + each, n_pages);
  const int64_t row = (int64_t)pair * search.page_table_stride;
  const uint8_t* levels = params.work.levels + row * kPageRowCount;
  int n_equal = 0;
  for (int page = first; page < end; ++page)
    n_equal += count_equal(levels + page * kPageRowCount, limit.level);
  int left = max(0, limit.n_at_level - sum_of_later_threads(n_equal));
  int n_marked = 0;
  for (int page = end - 1; page >= first; --page) {
    const uint8_t* of_page = levels + page * kPageRowCount;
    const uint64_t sure = limit.level >= kLevels - 1 ? 0 : rows_at_least(of_page, limit.level + 1);
    uint64_t equal = limit.level >= kLevels ? 0 : rows_at_least(of_page, limit.level) & ~sure;
    int n = __popcll(equal);
    for (; n > left; --n) equal &= equal - 1;  // the oldest go
    left -= n;
    search.words[row + page] = sure | equal;
    n_marked += __popcll(sure | equal);
  }
  n_marked = sum_of_block(n_marked);
  if (threadIdx.x == 0) search.n_marked[pair] = n_marked;
}

}  // namespace quire::cuda
