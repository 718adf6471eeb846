// Decode attention over pages, for any kind of rows.
//
// A block takes a part of the row of all tiles (split.h); its warps take its tiles in turn, each with a
// pipeline of copies of its own and a running softmax of its own, so warps meet only where a head's tiles
// end. The tile of products is 16 tokens times 8 query heads (of one KV head, unused columns zero): keys are
// the left factor, as rows; scores come out as [token][head], are turned over in registers, and are at once
// the right factor of
//
//   output [dim][head] += values [dim][token] probabilities [token][head]
//
// What a block leaves of a head is a partial state. The block that finds all states of its head written
// merges them, in the order of the tokens: there is no second launch.
//
// `Rows` says how tokens lie in memory and become factors: exact_rows.cuh, turbo_rows.cuh.
#pragma once

#include "kernels/cuda/device/partial_state.cuh"
#include "kernels/cuda/device/score_cap.cuh"
#include "kernels/cuda/split.h"

namespace quire::cuda {

// Scores may exceed the running maximum by so many powers of two before it is raised.
constexpr float kMaximumSlack = 8.0f;

template <class Rows>
struct AttentionParams {
  DecodeAttention a;
  typename Rows::Tables tables;
  int head_tiles;  // of a KV head
  int* counters;   // [pairs] states written so far
  float* states;   // [state_count][StateLayout::kFloats]
};

// Tiles [begin, end) of one head of one sequence.
struct Segment {
  int sequence;
  int kv_head;
  int first_head;  // of the group
  int n_heads;
  int n_tokens;
  int begin;
  int end;
  int pair;
  int first_token = 0;  // that is seen
};

template <class Rows>
struct RunningState {
  float m[2];  // of heads 2 c and 2 c + 1
  float l[2];  // of this lane's tokens
  float o[Rows::kOutTiles][4];
  typename Rows::ValueScale value_scale;
};

template <class Rows>
struct Queries {
  uint32_t factors[Rows::kQuerySteps][2];
  float scale[2];  // of scores of heads 2 c and 2 c + 1: to logarithms of base 2, and what f16 needed
};

// Heads beyond n_heads and dims beyond head_dim are zeros. Queries are brought near 1 by a power of two.
template <class Rows>
__device__ void load_queries(const DecodeAttention& a, const Segment& segment, Queries<Rows>& queries) {
  const int g = lane_index() / 4;
  const int c = lane_index() % 4;
  const int head = segment.kv_head * a.group + segment.first_head + g;
  const float* q = a.queries + ((int64_t)segment.sequence * a.n_kv_heads * a.group + head) * Rows::kHeadDim;
  float x[Rows::kQuerySteps][4];
  float largest = 0.0f;
#pragma unroll
  for (int step = 0; step < Rows::kQuerySteps; ++step) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int dim = Rows::query_dim(step, c, e);
      x[step][e] = g < segment.n_heads && dim < Rows::kHeadDim ? q[dim] : 0.0f;
      largest = fmaxf(largest, fabsf(x[step][e]));
    }
  }
  largest = fmaxf(largest, __shfl_xor_sync(kAllLanes, largest, 1));
  largest = fmaxf(largest, __shfl_xor_sync(kAllLanes, largest, 2));
  const int exponent = max(min((int)(__float_as_uint(largest) >> 23), 253), 1);
  const float down = __uint_as_float((unsigned)(254 - exponent) << 23);
#pragma unroll
  for (int step = 0; step < Rows::kQuerySteps; ++step) {
    queries.factors[step][0] = pack(typename Rows::Number{}, x[step][0] * down, x[step][1] * down);
    queries.factors[step][1] = pack(typename Rows::Number{}, x[step][2] * down, x[step][3] * down);
  }
  const float up = __uint_as_float((unsigned)exponent << 23) * a.scale * 1.4426950408889634f;
  queries.scale[0] = __shfl_sync(kAllLanes, up, 8 * c);
  queries.scale[1] = __shfl_sync(kAllLanes, up, 8 * c + 4);
}

// Copies the tiles of one warp into its stages, in turn; where pages lie is asked for 32 tiles at a time.
template <class Rows, int kStages>
struct Feed {
  static constexpr int kStageBytes = Rows::kKeyStageBytes + Rows::kValueStageBytes;
  static constexpr int kTilesPerPage = 64 / Rows::kTileTokens;

  const DecodeAttention& a;
  const Segment& segment;
  uint8_t* stages;
  int first;  // tile of this warp behind segment.begin, and from one to its next
  int step;
  int n = 0;      // tiles asked for so far
  int pages = 0;  // of tiles n / 32 * 32 + lane
  int page = 0;   // of the last tile asked for

  __device__ int tile(int i) const { return segment.begin + first + i * step; }
  __device__ uint8_t* keys(int i) const { return stages + i % kStages * kStageBytes; }
  __device__ uint8_t* values(int i) const { return keys(i) + Rows::kKeyStageBytes; }
  __device__ int rows_in(int t) const {
    return min(segment.n_tokens - t * Rows::kTileTokens, Rows::kTileTokens);
  }

  __device__ const uint8_t* rows(const RowPlane& plane) const {
    return plane.data + page * plane.page_stride + segment.kv_head * plane.head_stride;
  }
  // Keys of the next tile, then its values; either is a group of its own, empty behind the last tile.
  __device__ void ask_for_keys() {
    if (n % 32 == 0) {
      const int mine = tile(n + lane_index());
      const int32_t* table = a.page_table + (int64_t)segment.sequence * a.page_table_stride;
      pages = mine < segment.end ? table[mine / kTilesPerPage] : 0;
    }
    const int t = tile(n);
    page = __shfl_sync(kAllLanes, pages, n % 32);
    if (t < segment.end) {
      Rows::stage_keys(shared_address(keys(n)), rows(a.keys), t % kTilesPerPage * Rows::kTileTokens,
                       rows_in(t));
    }
    close_group();
  }
  __device__ void ask_for_values() {
    const int t = tile(n);
    if (t < segment.end) {
      Rows::stage_values(shared_address(values(n)), rows(a.values), t % kTilesPerPage * Rows::kTileTokens,
                         rows_in(t));
    }
    close_group();
    ++n;
  }
};

// Scores of tokens that are not there or not to be read become -inf.
template <class Rows>
__device__ void mask_scores(float (&s)[Rows::kTokenTiles][4], int first, int end) {
  const int g = lane_index() / 4;
#pragma unroll
  for (int tile = 0; tile < Rows::kTokenTiles; ++tile) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int token = Rows::token_in_tile(tile, e / 2, g);
      s[tile][e] = token >= first && token < end ? s[tile][e] : -CUDART_INF_F;
    }
  }
}

// Scores with their heads' bias, capped; all are times log2(e).
template <class Rows>
__device__ void cap_scores(const DecodeAttention& a, const Segment& segment,
                           float (&s)[Rows::kTokenTiles][4]) {
  constexpr float kLog2E = 1.4426950408889634f;
  const float cap = a.score_cap * kLog2E;
  const int c = lane_index() % 4;
  const int64_t head =
      (int64_t)segment.sequence * a.n_kv_heads * a.group + segment.kv_head * a.group + segment.first_head;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const bool is_there = a.score_bias != nullptr && 2 * c + i < segment.n_heads;
    const float bias = is_there ? a.score_bias[head + 2 * c + i] * kLog2E : 0.0f;
#pragma unroll
    for (int tile = 0; tile < Rows::kTokenTiles; ++tile) {
#pragma unroll
      for (int e = i; e < 4; e += 2) {
        s[tile][e] = capped(s[tile][e] + bias, cap);
      }
    }
  }
}

template <class Rows>
__device__ void scale_outputs(RunningState<Rows>& state, float first, float second) {
#pragma unroll
  for (int tile = 0; tile < Rows::kOutTiles; ++tile) {
    state.o[tile][0] *= first;
    state.o[tile][1] *= second;
    state.o[tile][2] *= first;
    state.o[tile][3] *= second;
  }
}

// top: the largest scores of this lane's tokens.
template <class Rows>
__device__ void raise_maximum(RunningState<Rows>& state, const float (&top)[2]) {
  float correction[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    float m = top[i];
#pragma unroll
    for (int lanes = 4; lanes < 32; lanes *= 2) m = fmaxf(m, __shfl_xor_sync(kAllLanes, m, lanes));
    m = fmaxf(m, state.m[i]);
    correction[i] = m == -CUDART_INF_F ? 1.0f : power_of_two(state.m[i] - m);
    state.m[i] = m;
    state.l[i] *= correction[i];
  }
  scale_outputs(state, correction[0], correction[1]);
}

// Scores become probabilities relative to the running maximum.
template <class Rows>
__device__ void softmax(RunningState<Rows>& state, float (&s)[Rows::kTokenTiles][4]) {
  float top[2] = {-CUDART_INF_F, -CUDART_INF_F};
#pragma unroll
  for (int tile = 0; tile < Rows::kTokenTiles; ++tile) {
    top[0] = fmaxf(top[0], fmaxf(s[tile][0], s[tile][2]));
    top[1] = fmaxf(top[1], fmaxf(s[tile][1], s[tile][3]));
  }
  const bool higher = top[0] > state.m[0] + kMaximumSlack || top[1] > state.m[1] + kMaximumSlack;
  if (__any_sync(kAllLanes, higher)) raise_maximum(state, top);
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const float m = state.m[i] == -CUDART_INF_F ? 0.0f : state.m[i];
#pragma unroll
    for (int tile = 0; tile < Rows::kTokenTiles; ++tile) {
      s[tile][i] = power_of_two(s[tile][i] - m);
      s[tile][i + 2] = power_of_two(s[tile][i + 2] - m);
      state.l[i] += s[tile][i] + s[tile][i + 2];
    }
  }
}

template <class Rows>
__device__ void score_tile(const DecodeAttention& a, const Segment& segment, const Queries<Rows>& queries,
                           int tile, const uint8_t* keys, float (&s)[Rows::kTokenTiles][4]) {
#pragma unroll
  for (int i = 0; i < Rows::kTokenTiles; ++i) {
#pragma unroll
    for (int e = 0; e < 4; ++e) s[i][e] = 0.0f;
  }
  Rows::score(keys, queries.factors, s);
#pragma unroll
  for (int i = 0; i < Rows::kTokenTiles; ++i) {
#pragma unroll
    for (int e = 0; e < 4; ++e) s[i][e] *= queries.scale[e % 2];
  }
  if (a.score_cap > 0.0f) cap_scores<Rows>(a, segment, s);
  const int first = tile * Rows::kTileTokens;
  if (first < segment.first_token || first + Rows::kTileTokens > segment.n_tokens) {
    mask_scores<Rows>(s, segment.first_token - first, segment.n_tokens - first);
  }
}

// Probabilities of a tile and its values go into the state.
template <class Rows>
__device__ void add_values(const uint8_t* values, int n_rows, float (&s)[Rows::kTokenTiles][4],
                           RunningState<Rows>& state) {
  const float correction = Rows::weigh(values, s, state.value_scale, n_rows);
  if (correction != 1.0f) scale_outputs(state, correction, correction);
  uint32_t p[Rows::kTokenTiles][2];
#pragma unroll
  for (int tile = 0; tile < Rows::kTokenTiles; ++tile) {
    p[tile][0] = transposed(pack(typename Rows::Number{}, s[tile][0], s[tile][1]));
    p[tile][1] = transposed(pack(typename Rows::Number{}, s[tile][2], s[tile][3]));
  }
  Rows::accumulate(values, p, state.o);
}

// Every step-th tile of the segment from the first on; `state` gets what they come to.
template <class Rows, int kStages>
__device__ void attend_tiles(const DecodeAttention& a, const Segment& segment, uint8_t* stages, int first,
                             int step, RunningState<Rows>& state) {
  Feed<Rows, kStages> feed{a, segment, stages, first, step};
  for (int i = 0; i < kStages; ++i) {
    feed.ask_for_keys();
    feed.ask_for_values();
  }
  Queries<Rows> queries;
  load_queries(a, segment, queries);
  for (int i = 0; feed.tile(i) < segment.end; ++i) {
    float s[Rows::kTokenTiles][4];
    wait_for_groups<2 * kStages - 1>();
    score_tile(a, segment, queries, feed.tile(i), feed.keys(i), s);
    __syncwarp();
    feed.ask_for_keys();
    softmax(state, s);
    wait_for_groups<2 * kStages - 1>();
    add_values(feed.values(i), feed.rows_in(feed.tile(i)), s, state);
    __syncwarp();
    feed.ask_for_values();
  }
  wait_for_groups<0>();
}

// To the layout of StateLayout.
template <class Rows>
__device__ void store_state(RunningState<Rows>& state, float* to) {
  using Layout = StateLayout<Rows::kHeadDim>;
  const int g = lane_index() / 4;
  const int c = lane_index() % 4;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    float l = state.l[i];
#pragma unroll
    for (int lanes = 4; lanes < 32; lanes *= 2) l += __shfl_xor_sync(kAllLanes, l, lanes);
    if (g == 0) {
      to[2 * c + i] = state.m[i];
      to[Layout::kSums + 2 * c + i] = l;
    }
  }
  const float unit = Rows::value_unit(state.value_scale);
#pragma unroll
  for (int tile = 0; tile < Rows::kOutTiles; ++tile) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int dim = Rows::out_dim(tile, e / 2, g);
      if (dim < Rows::kHeadDim) {
        to[Layout::kOutputs + (2 * c + e % 2) * Rows::kHeadDim + dim] = state.o[tile][e] * unit;
      }
    }
  }
}

// out and log_sums of a head from n states.
template <int kHeadDim, class Crew = WholeBlock>
__device__ void finish(const DecodeAttention& a, const Segment& segment, const float* states, int64_t stride,
                       int n, float* weights, MergedSums& merge) {
  weigh_states<kHeadDim, Crew>(states, stride, n, weights, merge, segment.n_heads);
  const int64_t first =
      (int64_t)segment.sequence * a.n_kv_heads * a.group + segment.kv_head * a.group + segment.first_head;
  for (int i = 4 * Crew::thread(); i < segment.n_heads * kHeadDim; i += 4 * Crew::n_threads()) {
    const int head = i / kHeadDim;
    float4 o = merged_output<kHeadDim>(states, stride, n, weights, head, i % kHeadDim);
    const float scale = merge.sum[head] > 0.0f ? 1.0f / merge.sum[head] : 0.0f;
    o = {o.x * scale, o.y * scale, o.z * scale, o.w * scale};
    *reinterpret_cast<float4*>(a.out + first * kHeadDim + i) = o;
  }
  if (Crew::thread() < segment.n_heads) {
    const int head = Crew::thread();
    a.log_sums[first + head] = merge.top[head] * 0.6931471805599453f + logf(merge.sum[head]);
  }
}

// The warps' states in shared memory become the block's state of n_heads heads in memory.
template <int kHeadDim, class Crew = WholeBlock>
__device__ void store_block_state(const float* states, int64_t stride, int n, int n_heads, float* weights,
                                  MergedSums& merge, float* to) {
  using Layout = StateLayout<kHeadDim>;
  weigh_states<kHeadDim, Crew>(states, stride, n, weights, merge, n_heads);
  for (int i = 4 * Crew::thread(); i < n_heads * kHeadDim; i += 4 * Crew::n_threads()) {
    const float4 o = merged_output<kHeadDim>(states, stride, n, weights, i / kHeadDim, i % kHeadDim);
    *reinterpret_cast<float4*>(to + Layout::kOutputs + i) = o;
  }
  if (Crew::thread() < n_heads) {
    to[Crew::thread()] = merge.top[Crew::thread()];
    to[Layout::kSums + Crew::thread()] = merge.sum[Crew::thread()];
  }
}

// Whether all n_parts states of a pair are written, this block's being the last; says so to one block only,
// and makes the counter ready for the next launch.
template <class Crew = WholeBlock>
__device__ __forceinline__ bool is_last(int* counter, int n_parts) {
  __shared__ bool last;
  Crew::wait();
  if (Crew::thread() == 0) {
    __threadfence();  // for what all of the crew wrote
    last = atomicAdd(counter, 1) == n_parts - 1;
    if (last) *counter = 0;
    __threadfence();
  }
  Crew::wait();
  return last;
}

// Everything of one segment: warps' tiles, their merge, and the merge with other blocks.
template <class Rows, int kStages>
__device__ void attend_segment(const AttentionParams<Rows>& params, const Segment& segment,
                               int64_t first_tile, int64_t n_head_tiles, int64_t n_tiles, int n_blocks) {
  constexpr int kHeadDim = Rows::kHeadDim;
  constexpr int kWarpBytes = kStages * (Rows::kKeyStageBytes + Rows::kValueStageBytes);
  constexpr int64_t kWarpFloats = kWarpBytes / 4;
  static_assert(kWarpFloats >= StateLayout<kHeadDim>::kFloats);
  __shared__ MergedSums merge;
  __shared__ float weights[Rows::kMostWarps * kTileHeads];
  uint8_t* stages = shared_memory() + Rows::kTableBytes;
  RunningState<Rows> state = {{-CUDART_INF_F, -CUDART_INF_F}};
  attend_tiles<Rows, kStages>(params.a, segment, stages + warp_index() * kWarpBytes, warp_index(),
                              (int)blockDim.x / 32, state);
  const float* states = reinterpret_cast<const float*>(stages);
  store_state(state, reinterpret_cast<float*>(stages + warp_index() * kWarpBytes));
  __syncthreads();
  const int n_warps = (int)blockDim.x / 32;
  const int first_block = block_of_tile(first_tile, n_tiles, n_blocks);
  const int n_parts = block_of_tile(first_tile + n_head_tiles - 1, n_tiles, n_blocks) - first_block + 1;
  if (n_parts == 1) {
    finish<kHeadDim>(params.a, segment, states, kWarpFloats, n_warps, weights, merge);
  } else {
    constexpr int64_t kFloats = StateLayout<kHeadDim>::kFloats;
    store_block_state<kHeadDim>(states, kWarpFloats, n_warps, segment.n_heads, weights, merge,
                                params.states + state_index((int)blockIdx.x, segment.pair) * kFloats);
    if (is_last(params.counters + segment.pair, n_parts)) {
      const float* parts = params.states + state_index(first_block, segment.pair) * kFloats;
      // Nobody reads the stages any more.
      finish<kHeadDim>(params.a, segment, parts, kFloats, n_parts, reinterpret_cast<float*>(stages), merge);
    }
  }
  __syncthreads();
}

__device__ __forceinline__ int first_seen(const DecodeAttention& a, int n_tokens) {
  return a.window > 0 ? max(a.first_token, n_tokens - a.window) : a.first_token;
}

// Tiles before a window, of which none is read.
__device__ __forceinline__ int tiles_before(const DecodeAttention& a, int n_tokens, int tile_tokens) {
  return a.window > 0 ? max(0, n_tokens - a.window) / tile_tokens : 0;
}

// prefix [n_sequences + 1]: tiles of a head of the sequences before. By one warp; nobody waits.
__device__ __forceinline__ void sum_tiles(const DecodeAttention& a, int tile_tokens, int* prefix) {
  int before = 0;
  for (int first = 0; first < a.n_sequences; first += 32) {
    const int sequence = first + lane_index();
    const int n_tokens = sequence < a.n_sequences ? a.n_tokens[sequence] : 0;
    int sum = tiles_of(n_tokens, tile_tokens) - tiles_before(a, n_tokens, tile_tokens);
    for (int lanes = 1; lanes < 32; lanes *= 2) {
      const int other = __shfl_up_sync(kAllLanes, sum, lanes);
      if (lane_index() >= lanes) sum += other;
    }
    if (sequence < a.n_sequences) prefix[sequence + 1] = before + sum;
    before += __shfl_sync(kAllLanes, sum, 31);
  }
  if (lane_index() == 0) prefix[0] = 0;
}

// Sequences without tokens, which no tile stands for; by the block's first n_threads.
__device__ __forceinline__ void clear_empty_sequences(const DecodeAttention& a, int n_threads) {
  const int n_heads = a.n_kv_heads * a.group;
  for (int sequence = (int)blockIdx.x; sequence < a.n_sequences; sequence += (int)gridDim.x) {
    if (a.n_tokens[sequence] > 0) continue;
    for (int i = (int)threadIdx.x; i < n_heads * a.head_dim; i += n_threads) {
      a.out[(int64_t)sequence * n_heads * a.head_dim + i] = 0.0f;
    }
    for (int i = (int)threadIdx.x; i < n_heads; i += n_threads) {
      a.log_sums[(int64_t)sequence * n_heads + i] = -CUDART_INF_F;
    }
  }
}

template <class Rows, int kStages>
__global__ void __launch_bounds__(32 * Rows::kMostWarps, Rows::kResidentBlocks)
    decode_attention(const __grid_constant__ AttentionParams<Rows> params) {
  __shared__ int prefix[kMaxSequences + 1];
  const DecodeAttention& a = params.a;
  if (warp_index() == 0) sum_tiles(a, Rows::kTileTokens, prefix);
  Rows::make_tables(params.tables);
  clear_empty_sequences(a, (int)blockDim.x);
  __syncthreads();
  const int heads = a.n_kv_heads * params.head_tiles;
  const int64_t n_tiles = (int64_t)prefix[a.n_sequences] * heads;
  const int n_blocks = busy_blocks(n_tiles, (int)gridDim.x);
  if ((int)blockIdx.x >= n_blocks) return;
  const TileRange mine = tiles_of_block((int)blockIdx.x, n_tiles, n_blocks);
  int sequence = 0;
  for (int64_t tile = mine.begin; tile < mine.end;) {
    while (tile >= (int64_t)prefix[sequence + 1] * heads) ++sequence;
    const int tiles = prefix[sequence + 1] - prefix[sequence];
    const int64_t within = tile - (int64_t)prefix[sequence] * heads;
    const int head = (int)(within / tiles);
    const int begin = (int)(within % tiles);
    const int end = (int)min((int64_t)tiles, begin + mine.end - tile);
    const int first_head = head % params.head_tiles * kTileHeads;
    const int n_tokens = a.n_tokens[sequence];
    const int skipped = tiles_before(a, n_tokens, Rows::kTileTokens);
    const Segment segment = {sequence,
                             head / params.head_tiles,
                             first_head,
                             min(a.group - first_head, kTileHeads),
                             n_tokens,
                             skipped + begin,
                             skipped + end,
                             sequence * heads + head,
                             first_seen(a, n_tokens)};
    attend_segment<Rows, kStages>(params, segment, tile - begin, tiles, n_tiles, n_blocks);
    tile += end - begin;
  }
}

}  // namespace quire::cuda
