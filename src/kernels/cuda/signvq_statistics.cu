#include "kernels/cuda/signvq_statistics.h"

#include <algorithm>

#include "kernels/cuda/check.cuh"
#include "kernels/cuda/device/warp.cuh"

#include "base/half.h"
#include "format/code_format.h"

namespace quire::cuda {

namespace {

constexpr int kParts = 64;  // of the tokens, each summed by a block
constexpr int kWords = 16;
constexpr int kWordSums = 5;     // four dims and a count
constexpr float kFloor = 0.01f;  // cache/prompt_statistics.cpp
constexpr int kSelectThreads = 1024;

size_t aligned(size_t n_bytes) { return (n_bytes + 255) / 256 * 256; }

// The workspace.
struct Measuring {
  RowsToMeasure rows;
  MeasuredSigns out;
  double* sums;       // [kv_head][kParts][head_dim], of values, then of sizes
  float* largest;     // [kv_head][kParts][head_dim]
  double* word_sums;  // [kv_head][kParts][group][kWords][kWordSums]
  uint32_t* scores;   // [kv_head][n_due], in the order of floats

  __device__ int groups() const { return rows.head_dim / 4; }
  __device__ const uint16_t* row(int kv_head, int token) const {
    return reinterpret_cast<const uint16_t*>(rows.keys.data + rows.pages[token / 64] * rows.keys.page_stride +
                                             kv_head * rows.keys.head_stride) +
           token % 64 * rows.head_dim;
  }
  __device__ float number(uint16_t bits) const {
    return rows.format == Format::kF16 ? f16_to_f32(bits) : bf16_to_f32(bits);
  }
  __device__ int first_of(int part) const { return (int)((int64_t)rows.n_tokens * part / kParts); }
};

// Tokens of a part that do not stay exact, in order: f(token).
template <class F>
__device__ void visit_coded(const Measuring& m, int kv_head, int part, F&& f) {
  const int32_t* kept = m.out.kept + kv_head * kMostKeptRows;
  int next = 0;
  const int last = m.first_of(part + 1);
  for (int token = m.first_of(part); token < last; ++token) {
    while (next < m.rows.n_kept && kept[next] < token) ++next;
    if (next < m.rows.n_kept && kept[next] == token) continue;
    f(token);
  }
}

// A thread a channel, a block a part of a head.
__global__ void sum_channels(const Measuring m) {
  const int kv_head = (int)blockIdx.x;
  const int part = (int)blockIdx.y;
  double sum = 0.0;
  for (int token = m.first_of(part); token < m.first_of(part + 1); ++token) {
    sum += (double)m.number(m.row(kv_head, token)[threadIdx.x]);
  }
  m.sums[(kv_head * kParts + part) * m.rows.head_dim + (int)threadIdx.x] = sum;
}

__device__ double add_parts(const Measuring& m, int kv_head, int channel) {
  double sum = 0.0;
  for (int part = 0; part < kParts; ++part)
    sum += m.sums[(kv_head * kParts + part) * m.rows.head_dim + channel];
  return sum;
}

__global__ void finish_means(const Measuring m) {
  const int kv_head = (int)blockIdx.x;
  m.out.mean[kv_head * m.rows.head_dim + (int)threadIdx.x] =
      (float)(add_parts(m, kv_head, (int)threadIdx.x) / (double)m.rows.n_tokens);
}

// A warp a row.
__global__ void score_rows(const Measuring m) {
  const int kv_head = (int)blockIdx.y;
  const int token = (int)(blockIdx.x * (blockDim.x / 32)) + warp_index();
  if (token >= m.rows.n_due) return;
  const uint16_t* row = m.row(kv_head, token);
  const float* q = m.rows.last_query + kv_head * m.rows.head_dim;
  double sum = 0.0;
  for (int j = lane_index(); j < m.rows.head_dim; j += 32) sum += (double)q[j] * (double)m.number(row[j]);
  for (int half = 16; half > 0; half /= 2) sum += __shfl_xor_sync(kAllLanes, sum, half);
  const uint32_t bits = __float_as_uint((float)sum);
  if (lane_index() == 0) {
    m.scores[(int64_t)kv_head * m.rows.n_due + token] = bits >> 31 ? ~bits : bits | 0x80000000u;
  }
}

struct SelectShared {
  int counts[256];
  int32_t positions[kMostKeptRows];
  int n_found;
  int n_left;  // to be taken of scores that begin like `prefix`
  uint32_t prefix;
  int warp_counts[kSelectThreads / 32];
};

// The n_kept-th largest score, eight bits at a time: prefix, and how many of the scores that are equal to it.
__device__ void find_threshold(const uint32_t* scores, int n, SelectShared& shared) {
  for (int shift = 24; shift >= 0; shift -= 8) {
    for (int i = (int)threadIdx.x; i < 256; i += kSelectThreads) shared.counts[i] = 0;
    __syncthreads();
    const uint32_t mask = shift == 24 ? 0 : ~0u << (shift + 8);
    for (int i = (int)threadIdx.x; i < n; i += kSelectThreads) {
      if ((scores[i] & mask) == shared.prefix) atomicAdd(&shared.counts[scores[i] >> shift & 255], 1);
    }
    __syncthreads();
    if (threadIdx.x == 0) {
      int digit = 255;
      while (digit > 0 && shared.counts[digit] < shared.n_left) shared.n_left -= shared.counts[digit--];
      shared.prefix |= (uint32_t)digit << shift;
    }
    __syncthreads();
  }
}

// Rows above the threshold, and the oldest of those at it.
__device__ void collect_rows(const uint32_t* scores, int n, SelectShared& shared) {
  for (int i = (int)threadIdx.x; i < n; i += kSelectThreads) {
    if (scores[i] > shared.prefix) shared.positions[atomicAdd(&shared.n_found, 1)] = i;
  }
  __syncthreads();
  for (int first = 0; first < n && shared.n_left > 0; first += kSelectThreads) {
    const int i = first + (int)threadIdx.x;
    const bool equal = i < n && scores[i] == shared.prefix;
    const unsigned lanes = __ballot_sync(kAllLanes, equal);
    if (lane_index() == 0) shared.warp_counts[warp_index()] = __popc(lanes);
    __syncthreads();
    int rank = __popc(lanes & ((1u << lane_index()) - 1));
    int all = 0;
    for (int warp = 0; warp < kSelectThreads / 32; ++warp) {
      if (warp < warp_index()) rank += shared.warp_counts[warp];
      all += shared.warp_counts[warp];
    }
    if (equal && rank < shared.n_left) shared.positions[shared.n_found + rank] = i;
    __syncthreads();
    if (threadIdx.x == 0) {
      const int n_taken = min(all, shared.n_left);
      shared.n_found += n_taken;
      shared.n_left -= n_taken;
    }
    __syncthreads();
  }
}

// A block a head: kept rows in their order.
__global__ void __launch_bounds__(kSelectThreads) select_rows(const Measuring m) {
  __shared__ SelectShared shared;
  const int kv_head = (int)blockIdx.x;
  const int n_kept = m.rows.n_kept;
  if (threadIdx.x == 0) {
    shared.n_found = 0;
    shared.n_left = n_kept;
    shared.prefix = 0;
  }
  __syncthreads();
  const uint32_t* scores = m.scores + (int64_t)kv_head * m.rows.n_due;
  find_threshold(scores, m.rows.n_due, shared);
  collect_rows(scores, m.rows.n_due, shared);
  const int i = (int)threadIdx.x;
  if (i >= n_kept) return;
  int rank = 0;
  for (int j = 0; j < n_kept; ++j) rank += shared.positions[j] < shared.positions[i];
  m.out.kept[kv_head * kMostKeptRows + rank] = shared.positions[i];
}

__global__ void measure_sizes(const Measuring m) {
  const int kv_head = (int)blockIdx.x;
  const int part = (int)blockIdx.y;
  const int channel = (int)threadIdx.x;
  const float mean = m.out.mean[kv_head * m.rows.head_dim + channel];
  const double n = (double)(m.rows.n_tokens - m.rows.n_kept);
  double sum = 0.0;
  float largest = 0.0f;
  visit_coded(m, kv_head, part, [&](int token) {
    const float size = fabsf(m.number(m.row(kv_head, token)[channel]) - mean);
    largest = fmaxf(largest, size);
    sum += (double)size / n;
  });
  const int at = (kv_head * kParts + part) * m.rows.head_dim + channel;
  m.sums[at] = sum;
  m.largest[at] = largest;
}

// Mean sizes stay in the first part's sums.
__global__ void finish_sizes(const Measuring m) {
  __shared__ float all[kMaxHeadDim];
  __shared__ float floor;
  const int kv_head = (int)blockIdx.x;
  const int channel = (int)threadIdx.x;
  const int d = m.rows.head_dim;
  float largest = 0.0f;
  for (int part = 0; part < kParts; ++part) {
    largest = fmaxf(largest, m.largest[(kv_head * kParts + part) * d + channel]);
  }
  const double size = add_parts(m, kv_head, channel);
  all[channel] = largest;
  __syncthreads();
  if (channel == 0) {
    float sum = 0.0f;
    for (int j = 0; j < d; ++j) sum += all[j];
    floor = kFloor * sum / (float)d;
  }
  __syncthreads();
  m.out.balance[kv_head * d + channel] = fmaxf(fmaxf(largest, floor), 1e-30f);
  m.sums[kv_head * kParts * d + channel] = size;
}

// A thread a group of four dims, with sums of its own.
__global__ void sum_words(const Measuring m) {
  __shared__ double sums[kWords][kWordSums][32];
  const int kv_head = (int)blockIdx.x;
  const int part = (int)blockIdx.y;
  const int lane = (int)threadIdx.x;
  const int group = (int)blockIdx.z * 32 + lane;
  if (group >= m.groups()) return;
  for (int i = 0; i < kWords * kWordSums; ++i) sums[i / kWordSums][i % kWordSums][lane] = 0.0;
  float mean[4], balance[4];
  for (int j = 0; j < 4; ++j) {
    mean[j] = m.out.mean[kv_head * m.rows.head_dim + 4 * group + j];
    balance[j] = m.out.balance[kv_head * m.rows.head_dim + 4 * group + j];
  }
  visit_coded(m, kv_head, part, [&](int token) {
    const auto four = *reinterpret_cast<const uint2*>(m.row(kv_head, token) + 4 * group);
    const uint16_t bits[4] = {(uint16_t)four.x, (uint16_t)(four.x >> 16), (uint16_t)four.y,
                              (uint16_t)(four.y >> 16)};
    float x[4];
    int word = 0;
    for (int j = 0; j < 4; ++j) {
      x[j] = __fdiv_rn(m.number(bits[j]) - mean[j], balance[j]);
      word |= (int)!(x[j] < 0.0f) << j;
    }
    for (int j = 0; j < 4; ++j) sums[word][j][lane] += (double)x[j];
    sums[word][4][lane] += 1.0;
  });
  double* to = m.word_sums + ((int64_t)(kv_head * kParts + part) * m.groups() + group) * kWords * kWordSums;
  for (int i = 0; i < kWords * kWordSums; ++i) to[i] = sums[i / kWordSums][i % kWordSums][lane];
}

// A thread a word.
__global__ void finish_words(const Measuring m) {
  const int kv_head = (int)blockIdx.x;
  const int d = m.rows.head_dim;
  for (int i = (int)threadIdx.x; i < m.groups() * kWords; i += (int)blockDim.x) {
    double sums[kWordSums] = {};
    for (int part = 0; part < kParts; ++part) {
      const double* from =
          m.word_sums + ((int64_t)(kv_head * kParts + part) * m.groups() * kWords + i) * kWordSums;
      for (int j = 0; j < kWordSums; ++j) sums[j] += from[j];
    }
    float* to = m.out.codebook + (int64_t)(kv_head * m.groups() * kWords + i) * 4;
    for (int j = 0; j < 4; ++j) {
      const int channel = i / kWords * 4 + j;
      const double size =
          m.sums[kv_head * kParts * d + channel] / (double)m.out.balance[kv_head * d + channel];
      to[j] = sums[4] > 0.0 ? (float)(sums[j] / sums[4]) : (float)((i % kWords >> j & 1) != 0 ? size : -size);
    }
  }
}

__global__ void mean_heads(const uint16_t* queries, Format format, int group, int head_dim, float* means) {
  const int kv_head = (int)blockIdx.x;
  const uint16_t* q = queries + (int64_t)kv_head * group * head_dim + threadIdx.x;
  float sum = 0.0f;
  for (int h = 0; h < group; ++h) {
    const uint16_t bits = q[h * head_dim];
    sum += format == Format::kF16 ? f16_to_f32(bits) : bf16_to_f32(bits);
  }
  means[kv_head * head_dim + (int)threadIdx.x] = sum / (float)group;
}

__global__ void gather_rows(const Measuring m, RowPlane values, uint16_t* to) {
  const int kv_head = (int)blockIdx.x;
  const int i = (int)blockIdx.y;
  const int d = m.rows.head_dim;
  const int token = m.out.kept[kv_head * kMostKeptRows + i];
  Measuring other = m;
  other.rows.keys = values;
  uint16_t* row = to + kv_head * 128 * d + i * d;
  row[threadIdx.x] = m.row(kv_head, token)[threadIdx.x];
  row[64 * d + threadIdx.x] = other.row(kv_head, token)[threadIdx.x];
}

size_t sums_bytes(int n_kv_heads, int d) {
  return aligned(sizeof(double) * (size_t)(n_kv_heads * kParts * d));
}
size_t largest_bytes(int n_kv_heads, int d) {
  return aligned(sizeof(float) * (size_t)(n_kv_heads * kParts * d));
}
size_t word_bytes(int n_kv_heads, int d) {
  return aligned(sizeof(double) * (size_t)(n_kv_heads * kParts) * (size_t)(d / 4 * kWords * kWordSums));
}

}  // namespace

size_t measuring_bytes(int n_kv_heads, int head_dim, int most_tokens) {
  return sums_bytes(n_kv_heads, head_dim) + largest_bytes(n_kv_heads, head_dim) +
         word_bytes(n_kv_heads, head_dim) +
         sizeof(uint32_t) * static_cast<size_t>(n_kv_heads) * static_cast<size_t>(most_tokens);
}

void measure_signs(const RowsToMeasure& rows, const MeasuredSigns& out, void* workspace, Stream stream) {
  auto* memory = static_cast<uint8_t*>(workspace);
  const int d = rows.head_dim;
  const auto take = [&](size_t n_bytes) {
    memory += n_bytes;
    return memory - n_bytes;
  };
  Measuring m{rows, out, nullptr, nullptr, nullptr, nullptr};
  m.sums = reinterpret_cast<double*>(take(sums_bytes(rows.n_kv_heads, d)));
  m.largest = reinterpret_cast<float*>(take(largest_bytes(rows.n_kv_heads, d)));
  m.word_sums = reinterpret_cast<double*>(take(word_bytes(rows.n_kv_heads, d)));
  m.scores = reinterpret_cast<uint32_t*>(memory);
  const auto heads = static_cast<unsigned>(rows.n_kv_heads);
  const auto channels = static_cast<unsigned>(d);
  sum_channels<<<dim3(heads, kParts), channels, 0, stream>>>(m);
  finish_means<<<heads, channels, 0, stream>>>(m);
  if (rows.n_kept > 0) {
    score_rows<<<dim3(static_cast<unsigned>((rows.n_due + 7) / 8), heads), 256, 0, stream>>>(m);
    select_rows<<<heads, kSelectThreads, 0, stream>>>(m);
  }
  measure_sizes<<<dim3(heads, kParts), channels, 0, stream>>>(m);
  finish_sizes<<<heads, channels, 0, stream>>>(m);
  sum_words<<<dim3(heads, kParts, static_cast<unsigned>((d / 4 + 31) / 32)), 32, 0, stream>>>(m);
  finish_words<<<heads, 256, 0, stream>>>(m);
  check(cudaGetLastError(), "measuring rows");
}

void mean_queries(const uint16_t* queries, Format format, int n_kv_heads, int group, int head_dim,
                  float* means, Stream stream) {
  mean_heads<<<n_kv_heads, head_dim, 0, stream>>>(queries, format, group, head_dim, means);
  check(cudaGetLastError(), "averaging queries");
}

void gather_kept(const RowsToMeasure& rows, const RowPlane& values, const int32_t* kept, uint8_t* to,
                 Stream stream) {
  if (rows.n_kept == 0) return;
  Measuring m{rows, {}, nullptr, nullptr, nullptr, nullptr};
  m.out.kept = const_cast<int32_t*>(kept);
  const dim3 grid(static_cast<unsigned>(rows.n_kv_heads), static_cast<unsigned>(rows.n_kept));
  gather_rows<<<grid, static_cast<unsigned>(rows.head_dim), 0, stream>>>(m, values,
                                                                         reinterpret_cast<uint16_t*>(to));
  check(cudaGetLastError(), "gathering rows");
}

}  // namespace quire::cuda
