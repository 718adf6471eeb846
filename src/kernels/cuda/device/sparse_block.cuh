// What a block of the sparse kernel knows of its pair, where its shared memory goes, and the queries in the
// forms that the steps want.
#pragma once

#include "kernels/cuda/device/block_sum.cuh"
#include "kernels/cuda/device/cluster.cuh"
#include "kernels/cuda/device/exact_rows.cuh"
#include "kernels/cuda/device/frame.cuh"
#include "kernels/cuda/device/octave_sum.cuh"
#include "kernels/cuda/device/partial_state.cuh"
#include "kernels/cuda/device/sparse_layout.h"

namespace quire::cuda {

constexpr float kLevelsOfOctave = 8.0f;
constexpr float kOctavesOfNat = 1.4426950408889634f;
// As the CPU: however little weight coded rows seem to have beside the exact ones, some are proposed.
constexpr float kMostBelowExact = 11.0f * kOctavesOfNat;
constexpr float kRoundingFloat = 12582912.0f;  // 1.5 2^23: what is added to it is rounded to whole numbers
constexpr int kRoundingBits = 0x4b400000;

struct SparseTables {
  uint16_t keys[16];  // centroids by code, f16
  uint16_t values[16];
};

struct SparseParams {
  SparseAttention a;
  SparsePlan plan;
  SparseTables tables;
};

// Where rows stop to be taken: all above `level`, of those at it the newest n_ties of this block. Blocks
// before this one take n_before.
struct ClusterLimit {
  int level;
  int n_ties;
  int n_before;
};

struct SparseShared {
  float2 warp_sums[kMostSparseWarps][kMostSparseHeads];
  // Read by the other blocks of the cluster.
  float2 estimate_sums[kMostSparseHeads];
  float2 exact_sums[kMostSparseHeads];
  float2 score_sums[kMostSparseHeads];
  float coded_sums[kMostSparseHeads];  // of weights of values
  int counts[kLevels];                 // of rows by level
  int score_counts[kLevels];
  int n_kept;
  int n_candidates;
  // Of the block alone.
  float estimate_scale[kMostSparseHeads];  // octaves of a unit, but for the row's norm
  float estimate_offset[kMostSparseHeads];
  float score_scale[kMostSparseHeads];
  float bias[kMostSparseHeads];  // octaves that centring took off every score
  float largest[kMostSparseHeads];
  float inverse_step[kMostSparseHeads];
  alignas(16) int offsets[kMostSparseHeads];     // eighths of octaves
  alignas(16) float log_sums[kMostSparseHeads];  // octaves
  float references[kMostSparseHeads];
  int least[kMostSparseHeads];
  ClusterLimit limit;
};

// Arrays of candidates, in shared memory or, where there are too many, in the workspace.
struct CandidateArrays {
  float* scores;    // [n][slots], octaves
  uint32_t* rows;   // 64 * page of the block + token
  uint32_t* kept;   // indices of candidates
  uint8_t* levels;  // [n]
};

template <int kHeadDim_>
struct SparseShape {
  static constexpr int kHeadDim = kHeadDim_;
  static constexpr int kPlaneBytes = kHeadDim / 8;
  static constexpr int kDepths = (kHeadDim + 127) / 128;
  static constexpr int kKeySteps = 8 * kDepths;
  static constexpr int kOutTiles = 8 * kDepths;  // of 16 dims, some of none
  static constexpr int kPairs = kQueryPlanes / 2;
};

// Pages of one KV head.
struct HeadPages {
  const uint8_t* data;
  int page_stride;  // bytes
};

struct SparseBlock {
  const SparseAttention& a;
  const SparsePlan& plan;
  SparseShared& shared;
  int n_blocks;
  int rank;
  int sequence;
  int kv_head;
  int pair;
  int first_page;  // of this block
  int n_pages;
  int n_head_fours;
  int n_head_tiles;
  HeadPages index;
  HeadPages keys;
  HeadPages values;
  // Shared memory.
  const int32_t* numbers;  // of the block's pages
  float* framed;           // [heads rounded up to 2][head_dim]
  uint32_t* query_bits;    // [fours][planes / 2][depths][32]
  uint2* factors;          // [tiles][steps][32]
  float* coded;            // [tiles][8][head_dim] outputs, read by the other blocks
  uint8_t* exact_stages;   // [exact warps]
  float* exact_states;     // [exact warps][tiles], read by the other blocks
  uint32_t* masses;        // [group][kLevels], read by the other blocks
  float* sums;
  uint8_t* area;

  __device__ const uint8_t* page_of(const HeadPages& pages, int page) const {
    return pages.data + (int64_t)numbers[page] * pages.page_stride;
  }
  __device__ int n_sinks() const { return first_page == 0 ? a.n_sinks : 0; }
  __device__ int first_head() const { return (sequence * a.n_kv_heads + kv_head) * a.group; }
  __device__ int score_slots() const { return 4 * n_head_fours; }
};

template <int kHeadDim>
__device__ SparseBlock sparse_block(const SparseParams& params, SparseShared& shared, int table_bytes) {
  const SparseAttention& a = params.a;
  const int n_blocks = cluster_blocks();
  const int pair = (int)blockIdx.x / n_blocks;
  const int rank = (int)blockIdx.x % n_blocks;
  const int sequence = pair / a.n_kv_heads;
  const int n_pages = a.n_tokens[sequence] / 64;
  const int first = (int)((int64_t)rank * n_pages / n_blocks);
  const int end = (int)((int64_t)(rank + 1) * n_pages / n_blocks);
  const SparseLayout layout =
      sparse_layout(a.group, kHeadDim, params.plan.n_warps, params.plan.exact_warps, by_mass(a.budget));
  static_assert(exact_stage_bytes(kHeadDim) == ExactRows<__half, kHeadDim>::kKeyStageBytes);
  uint8_t* memory = shared_memory() + table_bytes;
  const int kv_head = pair % a.n_kv_heads;
  const auto of_head = [=](const RowPlane& plane) {
    return HeadPages{plane.data + kv_head * plane.head_stride, (int)plane.page_stride};
  };
  const int32_t* table = a.page_table + (int64_t)sequence * a.page_table_stride + first;
  auto* numbers = reinterpret_cast<int32_t*>(memory + layout.numbers);
  const bool fits = end - first <= kCachedNumbers;
  if (fits) {
#pragma unroll 1
    for (int i = (int)threadIdx.x; i < end - first; i += (int)blockDim.x) numbers[i] = table[i];
  }
  return {a,
          params.plan,
          shared,
          n_blocks,
          rank,
          sequence,
          kv_head,
          pair,
          first,
          end - first,
          (a.group + 3) / 4,
          (a.group + kTileHeads - 1) / kTileHeads,
          of_head(a.index),
          of_head(a.keys),
          of_head(a.values),
          fits ? numbers : table,
          reinterpret_cast<float*>(memory + layout.framed),
          reinterpret_cast<uint32_t*>(memory + layout.query_bits),
          reinterpret_cast<uint2*>(memory + layout.factors),
          reinterpret_cast<float*>(memory + layout.coded),
          memory + layout.exact_stages,
          reinterpret_cast<float*>(memory + layout.exact_states),
          reinterpret_cast<uint32_t*>(memory + layout.masses),
          reinterpret_cast<float*>(memory + layout.sums),
          memory + layout.area};
}

__device__ inline float sum_of_half_warp(float x) {
  for (int lanes = 8; lanes > 0; lanes /= 2) x += __shfl_xor_sync(kAllLanes, x, lanes);
  return x;
}

// The group's queries into the frame, half a warp a head.
template <int kHeadDim>
__device__ void frame_queries(const SparseBlock& block) {
  const SparseAttention& a = block.a;
  SparseShared& shared = block.shared;
  const auto of_head = [&](const float* plane) {
    return plane == nullptr ? nullptr : plane + block.kv_head * kHeadDim;
  };
  const Frame frame = {kHeadDim, of_head(a.key_frame.mean), of_head(a.key_frame.balance),
                       of_head(a.key_frame.signs)};
  for (int head = a.group + (int)threadIdx.x; head < kMostSparseHeads; head += (int)blockDim.x) {
    shared.estimate_scale[head] = shared.estimate_offset[head] = 0.0f;
    shared.score_scale[head] = shared.bias[head] = 0.0f;
  }
#pragma unroll 1
  for (int head = (int)threadIdx.x / kRowLanes; head / 2 * 2 < a.group; head += (int)blockDim.x / kRowLanes) {
    const float* q = a.queries + (int64_t)(block.first_head() + head) * kHeadDim;
    float* x = block.framed + head * kHeadDim;
    float bias = 0.0f;
    for (int j = row_lane(); j < kHeadDim; j += kRowLanes) {
      const float number = head < a.group ? q[j] : 0.0f;
      if (frame.mean != nullptr) bias += number * frame.mean[j];
      x[j] = frame.balance != nullptr ? number * frame.balance[j] : number;
    }
    __syncwarp();
    rotate_row(frame, x);
    float largest = 0.0f;
    for (int j = row_lane(); j < kHeadDim; j += kRowLanes) largest = fmaxf(largest, fabsf(x[j]));
    for (int lanes = 8; lanes > 0; lanes /= 2)
      largest = fmaxf(largest, __shfl_xor_sync(kAllLanes, largest, lanes));
    const float inverse = largest > 0x1p-100f ? kLargestQueryCode / largest : 0.0f;
    float sum = 0.0f;
    for (int j = row_lane(); j < kHeadDim; j += kRowLanes) sum += rintf(x[j] * inverse);
    sum = sum_of_half_warp(sum);
    bias = sum_of_half_warp(bias);
    if (row_lane() == 0 && head < a.group) {
      const float unit = a.scale * kOctavesOfNat;
      const int exponent = max(min((int)(__float_as_uint(largest) >> 23), 253), 1);
      // A sign stands for the mean of what has that sign: sqrt(2 / (pi head_dim)) of the norm.
      const float mean = 0.7978845608028654f / sqrtf((float)kHeadDim);
      shared.estimate_scale[head] = largest / kLargestQueryCode * mean * unit;
      shared.estimate_offset[head] = kRoundingFloat + sum;
      shared.inverse_step[head] = inverse;
      shared.largest[head] = __uint_as_float((unsigned)(254 - exponent) << 23);
      shared.score_scale[head] = __uint_as_float((unsigned)exponent << 23) * unit;
      shared.bias[head] = bias * unit;
    }
  }
}

// Bit planes of the rounded queries as the right factor of count_common_bits(): columns are a head's two
// planes.
template <int kHeadDim>
__device__ void make_query_bits(const SparseBlock& block) {
  using Shape = SparseShape<kHeadDim>;
  const int n_words = 4 * Shape::kDepths;
#pragma unroll 1
  for (int i = warp_index(); i < 4 * block.n_head_fours * n_words; i += (int)blockDim.x / 32) {
    const int head = i / n_words;
    const int word = i % n_words;
    const int dim = 32 * word + lane_index();
    int code = 0;
    if (head < block.a.group && dim < kHeadDim)
      code = __float2int_rn(block.framed[head * kHeadDim + dim] * block.shared.inverse_step[head]);
#pragma unroll
    for (int plane = 0; plane < kQueryPlanes; ++plane) {
      const uint32_t bits = __ballot_sync(kAllLanes, code >> plane & 1);
      const int lane = 4 * (2 * (head % 4) + plane % 2) + word % 4;
      const int at = ((head / 4 * Shape::kPairs + plane / 2) * Shape::kDepths + word / 4) * 32 + lane;
      if (lane_index() == 0) block.query_bits[at] = bits;
    }
  }
}

// Dim of number e of a lane's part of step `step` of the right factor of the keys' products
// (sparse_rows.cuh).
__device__ inline int key_dim(int step, int c, int e) {
  const int pair = step % 8 % 2 * 2 + e / 2;
  return 128 * (step / 8) + 32 * c + 8 * pair + step % 8 / 2 + e % 2 * 4;
}

template <int kHeadDim>
__device__ void make_query_factors(const SparseBlock& block) {
  constexpr int kSteps = SparseShape<kHeadDim>::kKeySteps;
#pragma unroll 1
  for (int i = (int)threadIdx.x; i < block.n_head_tiles * kSteps * 32; i += (int)blockDim.x) {
    const int lane = i % 32;
    const int head = i / (32 * kSteps) * kTileHeads + lane / 4;
    const int step = i / 32 % kSteps;
    float x[4] = {};
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int dim = key_dim(step, lane % 4, e);
      if (head < block.a.group && dim < kHeadDim)
        x[e] = block.framed[head * kHeadDim + dim] * block.shared.largest[head];
    }
    block.factors[i] = {pack(__half{}, x[0], x[1]), pack(__half{}, x[2], x[3])};
  }
}

}  // namespace quire::cuda
