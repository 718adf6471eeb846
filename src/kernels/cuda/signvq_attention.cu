#include "kernels/cuda/signvq_attention.h"

#include <math_constants.h>

#include <algorithm>
#include <string>
#include <type_traits>

#include "kernels/cuda/check.cuh"
#include "kernels/cuda/device/early_start.cuh"
#include "kernels/cuda/device/partial_state.cuh"
#include "kernels/cuda/device/signvq_choice.cuh"
#include "kernels/cuda/device/signvq_fetch.cuh"
#include "kernels/cuda/device/signvq_rows.cuh"

namespace quire::cuda {

namespace {

// Rows that a block lists at a time; tiles of all of its warps begin anew behind them.
constexpr int kListRows = 10240;
// And of rows that may have to be fetched, which are noted where tiles are on their way later.
constexpr int kFetchedRows = 4096;

// What a warp leaves: tops and sums of the heads, then outputs [kTileHeads][numbers]. The same of a block, in
// the workspace.
template <int kRounds>
struct SumsLayout {
  static constexpr int kNumbers = 128 * kRounds;
  static constexpr int kFloats = kTileHeads * (kNumbers + 2);
};

// In dynamic shared memory: the list and tiles on their way, or what warps leave.
template <int kRounds>
struct AttendShared {
  static constexpr int kRingOffset = kListRows * (int)sizeof(uint32_t);
  static constexpr int kListBytes = kRingOffset + kSignVqWarps * TileRing<kRounds>::kBytes;
  static constexpr int kSumsBytes = kSignVqWarps * SumsLayout<kRounds>::kFloats * (int)sizeof(float);
  static constexpr int kBytes = kListBytes > kSumsBytes ? kListBytes : kSumsBytes;
};

template <int kRounds>
struct StaticShared {
  ChoiceShared choice;
  // Queries times scale and log2(e), as they are and in the frame; zeros behind head_dim and group.
  alignas(16) __half plain[kTileHeads][128 * kRounds];
  alignas(16) __half framed[kTileHeads][128 * kRounds];
  float bias[kTileHeads];  // of scores in the frame
  MergedSums merged;
  float weights[64 * kTileHeads];
  bool is_last;
  int n_fetches;
  int n_in_place;
};

// The block's place in the grid.
struct Place {
  int pair;
  int tile;   // of eight query heads
  int block;  // of the pair and tile
  int n_blocks;
  int first_head;
  int n_heads;
};

__device__ __forceinline__ Place place_of(const SignVqParams& p) {
  const int n_tiles = (p.a.group + kTileHeads - 1) / kTileHeads;
  const int at = (int)blockIdx.x / p.plan.attend_blocks;
  const int tile = at % n_tiles;
  return {at / n_tiles,
          tile,
          (int)blockIdx.x % p.plan.attend_blocks,
          p.plan.attend_blocks,
          at / n_tiles * p.a.group + tile * kTileHeads,
          min(kTileHeads, p.a.group - tile * kTileHeads)};
}

// A warp a head. All numbers are asked for before one is used.
template <int kRounds>
__device__ void load_queries(const SignVqParams& p, const Place& place, StaticShared<kRounds>& shared) {
  constexpr int kEach = 4 * kRounds;
  const int d = p.a.head_dim;
  const int head = warp_index();
  const float* q = p.a.queries + (int64_t)(place.first_head + head) * d;
  const float* balance = p.a.statistics.balance + (int64_t)place.pair * d;
  const float* mean = p.a.statistics.mean + (int64_t)place.pair * d;
  float plain[kEach], balances[kEach], means[kEach];
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const int j = 32 * i + lane_index();
    plain[i] = j < d && head < place.n_heads ? q[j] : 0.0f;
    balances[i] = j < d ? balance[j] : 0.0f;
    means[i] = j < d ? mean[j] : 0.0f;
  }
  float bias = 0.0f;
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const float x = p.a.scale * 1.44269504f * plain[i];
    bias += x * means[i];
    shared.plain[head][32 * i + lane_index()] = __float2half(x);
    shared.framed[head][32 * i + lane_index()] = __float2half(x * balances[i]);
  }
  for (int half = 16; half > 0; half /= 2) bias += __shfl_xor_sync(kAllLanes, bias, half);
  if (lane_index() == 0) shared.bias[head] = bias;
}

template <int kRounds>
__device__ __forceinline__ void take_queries(const __half (&from)[kTileHeads][128 * kRounds],
                                             TileQueries<kRounds>& queries) {
  const __half* head = from[lane_index() / 4];
#pragma unroll
  for (int i = 0; i < 8 * kRounds; ++i) {
    const uint2 x = *reinterpret_cast<const uint2*>(head + 32 * (i / 8 * 4 + lane_index() % 4) + 4 * (i % 8));
    queries[i][0] = x.x;
    queries[i][1] = x.y;
  }
}

// Exact rows of the tail, then those kept; tile i is for block i % n_blocks and its warp i / n_blocks.
template <int kRounds>
__device__ void attend_exact(const SignVqParams& p, const Place& place, const TileQueries<kRounds>& queries,
                             int n_kept, TileSums<kRounds>& sums) {
  const SignVqAttention& a = p.a;
  const int sequence = place.pair / a.n_kv_heads;
  const int kv_head = place.pair % a.n_kv_heads;
  const int n_tail = a.exact_tokens[sequence];
  const int tail_tiles = (n_tail + kTileRows - 1) / kTileRows;
  const int n_tiles = tail_tiles + (n_kept + kTileRows - 1) / kTileRows;
  const float none[2] = {0.0f, 0.0f};
  for (int i = place.block + place.n_blocks * warp_index(); i < n_tiles; i += place.n_blocks * kSignVqWarps) {
    const bool is_kept = i >= tail_tiles;
    const int row = (is_kept ? i - tail_tiles : i) * kTileRows;
    const int page =
        is_kept ? a.kept_pages[sequence] : a.exact_table[(int64_t)sequence * a.exact_table_stride + row / 64];
    const auto side = [&](const RowPlane& plane) {
      return plane.data + page * plane.page_stride + kv_head * plane.head_stride +
             2 * a.head_dim * (row % 64);
    };
    const int n = min(kTileRows, (is_kept ? n_kept : n_tail) - row);
    ExactTile<kRounds> tile;
    tile.is_bf16 = a.format == Format::kBF16;
    tile.load(side(a.exact_keys), side(a.exact_values), n, a.head_dim);
    attend_tile(tile, n, queries, none, sums);
  }
}

// The listed rows, tile by tile: a warp takes every eighth.
template <int kRounds>
__device__ void attend_listed(const LaneOffsets<kRounds>& rows, const uint32_t* list, int n, uint8_t* ring,
                              const TileQueries<kRounds>& queries, const float (&bias)[2],
                              TileSums<kRounds>& sums) {
  using Ring = TileRing<kRounds>;
  const int n_tiles = (n + kTileRows - 1) / kTileRows;
  const int first = warp_index();
  const auto fetch = [&](int tile, int slot) {
    if (tile < n_tiles) {
      CodedTile<kRounds>::fetch(rows, list + kTileRows * tile,
                                shared_address(ring) + slot * Ring::kTileBytes);
    }
    close_group();
  };
  for (int i = 0; i < Ring::kTiles - 1; ++i) fetch(first + kSignVqWarps * i, i);
  int slot = 0;
  for (int tile = first; tile < n_tiles; tile += kSignVqWarps) {
    wait_for_groups<Ring::kTiles - 2>();
    CodedTile<kRounds> own;
    own.take(ring + slot * Ring::kTileBytes);
    slot = (slot + 1) % Ring::kTiles;
    fetch(tile + kSignVqWarps * (Ring::kTiles - 1), (slot + Ring::kTiles - 2) % Ring::kTiles);
    attend_tile(own, n - kTileRows * tile, queries, bias, sums);
  }
  wait_for_groups<0>();
}

template <int kRounds, class Params>
__device__ void attend_coded(const Params& p, const Place& place, int n_pages, int n_wanted, int n_coded,
                             uint32_t* list, StaticShared<kRounds>& shared, TileSums<kRounds>& sums) {
  constexpr bool kFetches = std::is_same_v<Params, OffloadedSignVqParams>;
  constexpr int kPart = kFetches ? kFetchedRows : kListRows;
  static_assert(kPart % (kTileRows * kSignVqWarps) == 0);
  static_assert(!kFetches || kPart * (int)sizeof(RowFetch) <= kSignVqWarps * TileRing<kRounds>::kBytes);
  const RowChoice choice = choose_rows(p, place.pair, n_wanted, n_coded, shared.choice);
  if (place.tile == 0 && place.block == 0 && threadIdx.x == 0 && p.a.n_read != nullptr) {
    p.a.n_read[place.pair] = choice.n_rows;
  }
  if (choice.n_rows == 0) return;
  sum_parts(p, place.pair, choice, shared.choice);
  const RankRange ranks = share_ranks(p, choice, place.block, place.n_blocks, shared.choice);
  if (ranks.first >= ranks.last) return;
  TileQueries<kRounds> queries;
  take_queries<kRounds>(shared.framed, queries);
  const float bias[2] = {shared.bias[lane_index() % 4 * 2], shared.bias[lane_index() % 4 * 2 + 1]};
  uint8_t* rings = reinterpret_cast<uint8_t*>(list) + AttendShared<kRounds>::kRingOffset;
  uint8_t* ring = rings + warp_index() * TileRing<kRounds>::kBytes;
  uint64_t* marks = p.a.marks != nullptr ? p.a.marks + (int64_t)place.pair * p.a.page_table_stride : nullptr;
  const uint8_t* base = p.a.rows.data + place.pair % p.a.n_kv_heads * p.a.rows.head_stride;
  for (int first = ranks.first; first < ranks.last; first += kPart) {
    const RankRange part = {first, min(ranks.last, first + kPart)};
    const int n = part.last - part.first;
    if constexpr (kFetches) {
      list_rows(p, place.pair, n_pages, choice, part, places_in_text(), list, marks, shared.choice);
      const ListedFetch fetch(p, place.pair);
      fetch.bring(list, n, first, reinterpret_cast<RowFetch*>(rings), shared.n_fetches, shared.n_in_place);
      base = fetch.base();
    } else {
      list_rows(p, place.pair, n_pages, choice, part, places_in_pages(p, place.pair), list, marks,
                shared.choice);
    }
    fill_last_tile(list, n);
    attend_listed<kRounds>(LaneOffsets<kRounds>(base, p.a.head_dim), list, n, ring, queries, bias, sums);
    __syncthreads();
  }
}

// A warp's sums to where it leaves them.
template <int kRounds>
__device__ void leave_sums(TileSums<kRounds>& sums, float* to) {
  const int g = lane_index() / 4;
  const int head = lane_index() % 4 * 2;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    for (int lanes = 4; lanes < 32; lanes *= 2) sums.sum[i] += __shfl_xor_sync(kAllLanes, sums.sum[i], lanes);
    if (g == 0) {
      to[head + i] = sums.top[i];
      to[kTileHeads + head + i] = sums.sum[i];
    }
    float* out = to + 2 * kTileHeads + (head + i) * SumsLayout<kRounds>::kNumbers;
#pragma unroll
    for (int j = 0; j < 8 * kRounds; ++j) {
      const int number = 16 * (j / 8 * 8 + g) + 2 * (j % 8);
      *reinterpret_cast<float2*>(out + number) = {sums.out[j][i], sums.out[j][i + 2]};
    }
  }
}

// n states become outputs: to p.a.out where `is_final`, else one state more, at `to`. The block waits.
template <int kRounds>
__device__ void merge_sums(const SignVqParams& p, const Place& place, const float* states, int n,
                           bool is_final, float* to, StaticShared<kRounds>& shared) {
  constexpr int kNumbers = SumsLayout<kRounds>::kNumbers;
  constexpr int kStride = SumsLayout<kRounds>::kFloats;
  weigh_states<kNumbers>(states, kStride, n, shared.weights, shared.merged);
  for (int i = (int)threadIdx.x; i < place.n_heads * (kNumbers / 4); i += kSignVqThreads) {
    const int head = i / (kNumbers / 4);
    const int dim = i % (kNumbers / 4) * 4;
    if (dim >= p.a.head_dim) continue;
    float4 x = merged_output<kNumbers>(states, kStride, n, shared.weights, head, dim);
    float* at = to + 2 * kTileHeads + head * kNumbers + dim;
    if (is_final) {
      const float sum = shared.merged.sum[head];
      const float share = sum > 0.0f ? 1.0f / sum : 0.0f;
      x = {x.x * share, x.y * share, x.z * share, x.w * share};
      at = p.a.out + (int64_t)(place.first_head + head) * p.a.head_dim + dim;
    }
    *reinterpret_cast<float4*>(at) = x;
  }
  const int head = (int)threadIdx.x;
  if (head >= kTileHeads) return;
  if (!is_final) {
    to[head] = shared.merged.top[head];
    to[kTileHeads + head] = shared.merged.sum[head];
  } else if (head < place.n_heads) {
    p.a.log_sums[place.first_head + head] =
        (shared.merged.top[head] + log2f(shared.merged.sum[head])) * 0.69314718f;
  }
}

template <int kRounds, class Params>
__global__ void __launch_bounds__(kSignVqThreads, kRounds == 1 ? 2 : 1)
    attend_signvq_rows(const __grid_constant__ Params p) {
  __shared__ StaticShared<kRounds> shared;
  const Place place = place_of(p);
  const int sequence = place.pair / p.a.n_kv_heads;
  load_queries(p, place, shared);
  __syncthreads();
  const int n_pages = p.a.n_tokens[sequence] / 64;
  const int n_kept = n_pages > 0 ? p.a.n_kept_rows : 0;
  const int n_coded = 64 * n_pages - n_kept;
  TileSums<kRounds> sums;
  {
    TileQueries<kRounds> queries;
    take_queries<kRounds>(shared.plain, queries);
    attend_exact<kRounds>(p, place, queries, n_kept, sums);
  }
  wait_for_inputs();  // of the scan
  auto* memory = shared_memory();
  if (n_pages > 0) {
    const int n_wanted = sparse_counts(p.a.budget, p.a.exact_tokens[sequence] + n_kept, n_coded).n_rows;
    attend_coded<kRounds>(p, place, n_pages, n_wanted, n_coded, reinterpret_cast<uint32_t*>(memory), shared,
                          sums);
  } else if (place.tile == 0 && place.block == 0 && threadIdx.x == 0 && p.a.n_read != nullptr) {
    p.a.n_read[place.pair] = 0;
  }
  auto* states = reinterpret_cast<float*>(memory);
  __syncthreads();
  leave_sums(sums, states + warp_index() * SumsLayout<kRounds>::kFloats);
  __syncthreads();
  const int group_of_blocks = (int)blockIdx.x / place.n_blocks;
  auto* all = reinterpret_cast<float*>(p.workspace() + p.plan.states_offset) +
              (int64_t)group_of_blocks * place.n_blocks * SumsLayout<kRounds>::kFloats;
  merge_sums(p, place, states, kSignVqWarps, place.n_blocks == 1,
             all + place.block * SumsLayout<kRounds>::kFloats, shared);
  if (place.n_blocks == 1) return;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    const int n_done = atomicAdd(p.counters() + group_of_blocks, 1);
    shared.is_last = n_done == place.n_blocks - 1;
    if (shared.is_last) p.counters()[group_of_blocks] = 0;
  }
  __syncthreads();
  if (!shared.is_last) return;
  __threadfence();
  merge_sums(p, place, all, place.n_blocks, true, nullptr, shared);
}

template <int kRounds, class Params>
void launch(const Params& params, Stream stream) {
  const auto kernel = attend_signvq_rows<kRounds, Params>;
  constexpr int kBytes = AttendShared<kRounds>::kBytes;
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes),
        "reserving shared memory");
  const SignVqAttention& a = params.a;
  const int n_tiles = a.n_sequences * a.n_kv_heads * ((a.group + kTileHeads - 1) / kTileHeads);
  cudaLaunchAttribute overlap{};
  overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  overlap.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(n_tiles * params.plan.attend_blocks));
  config.blockDim = dim3(kSignVqThreads);
  config.dynamicSmemBytes = kBytes;
  config.stream = stream;
  config.attrs = &overlap;
  config.numAttrs = waits_for_inputs(reinterpret_cast<const void*>(kernel)) ? 1 : 0;
  check(cudaLaunchKernelEx(&config, kernel, params), "launching attention to signvq rows");
}

}  // namespace

void attend_signvq(const SignVqAttention& attention, const SignVqPlan& plan, Stream stream) {
  const SignVqParams params = {attention, plan};
  launch_signvq_scan(params, stream);
  attention.head_dim > 128 ? launch<2>(params, stream) : launch<1>(params, stream);
}

void attend_offloaded_signvq(const SignVqAttention& attention, const OffloadedRows& rows,
                             const SignVqPlan& plan, Stream stream) {
  if (!has_offloaded_signvq(attention.head_dim, attention.group)) {
    throw Error("no CUDA kernel for signvq rows outside with heads of " + std::to_string(attention.head_dim) +
                " values, " + std::to_string(attention.group) + " query heads a KV head");
  }
  OffloadedSignVqParams params{};
  params.a = attention;
  params.plan = plan;
  params.outside = rows;
  launch_signvq_scan(params, stream);
  launch<1>(params, stream);
}

}  // namespace quire::cuda
