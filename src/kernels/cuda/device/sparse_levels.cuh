// From estimates to candidates: levels of all rows, the level down to which the cluster takes them, and which
// rows of a block that are. The same search for a level serves the scores.
#pragma once

#include <limits.h>

#include "kernels/cuda/device/sparse_index.cuh"

namespace quire::cuda {

// warp_sums of the group's heads become one sum of the block each.
__device__ __noinline__ inline void sum_warps(SparseShared& shared, int group, float2* sums) {
  if ((int)threadIdx.x >= group) return;
  OctaveSum all;
#pragma unroll 1
  for (int warp = 0; warp < (int)blockDim.x / 32; ++warp) all.add(shared.warp_sums[warp][threadIdx.x]);
  sums[threadIdx.x] = {all.top, all.sum};
}

// Over the blocks of the cluster; by one warp, the same in all lanes.
__device__ __noinline__ inline float2 sum_blocks(const float2* sums, int n_blocks, int head) {
  OctaveSum all;
  if (lane_index() < n_blocks) all.add(of_block(sums, lane_index())[head]);
#pragma unroll 1
  for (int lanes = 1; lanes < kMostClusterBlocks; lanes *= 2) all.add_lane(lanes);
  return {__shfl_sync(kAllLanes, all.top, 0), __shfl_sync(kAllLanes, all.sum, 0)};
}

// What levels of a head are relative to: the mass of exact rows and estimates. A warp a head.
__device__ inline void find_offsets(const SparseBlock& block) {
  SparseShared& shared = block.shared;
#pragma unroll 1
  for (int head = warp_index(); head < block.a.group; head += (int)blockDim.x / 32) {
    const float coded =
        octaves_of(sum_blocks(shared.estimate_sums, block.n_blocks, head)) + shared.bias[head];
    OctaveSum all;
    all.add(sum_blocks(shared.exact_sums, block.n_blocks, head));
    all.add(coded, coded == -CUDART_INF_F ? 0.0f : 1.0f);
    const float offset = fminf(all.octaves(), coded + kMostBelowExact) - shared.bias[head];
    if (lane_index() == 0)
      shared.offsets[head] = __float2int_rn(fminf(fmaxf(offset, -1e6f), 1e6f) * kLevelsOfOctave);
  }
  // Heads that there are not raise no level.
  for (int head = block.a.group + (int)threadIdx.x; head < kMostSparseHeads; head += (int)blockDim.x)
    shared.offsets[head] = INT_MAX / 2;
}

// max(a + b, c) of both halves.
__device__ __forceinline__ uint32_t add_max(uint32_t a, uint32_t b, uint32_t c) {
  return __viaddmax_s16x2(a, b, c);
}

// What a thread reads of four heads of a page to level rows 8 i + g: all of it asked for at once, as it may
// lie in the workspace.
struct FourEstimates {
  float4 maxima;
  uint2 bytes[4];

  __device__ __forceinline__ void load(const Estimates& from, int at, int page, int g) {
    maxima = *reinterpret_cast<const float4*>(from.maxima + 4 * at);
#pragma unroll
    for (int c = 0; c < 4; ++c)
      bytes[c] =
          *reinterpret_cast<const uint2*>(from.bytes + at * kPageEstimateBytes + (c + page) % 4 * 64 + 8 * g);
  }
  // The larger of the rows' levels for these heads and of `best`, two rows to a word. offsets: of the heads.
  __device__ __forceinline__ void raise(const int* offsets, uint32_t (&best)[4]) const {
    const float maximum[4] = {maxima.x, maxima.y, maxima.z, maxima.w};
    const int4 all = *reinterpret_cast<const int4*>(offsets);
    const int offset[4] = {all.x, all.y, all.z, all.w};
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      const int below = max((int)maximum[c] - offset[c], -kLevels);
      const uint32_t base = (uint32_t)(min(below, 0) & 0xffff) * 0x10001u;
      best[0] = add_max(__byte_perm(bytes[c].x, 0, 0x4140), base, best[0]);
      best[1] = add_max(__byte_perm(bytes[c].x, 0, 0x4342), base, best[1]);
      best[2] = add_max(__byte_perm(bytes[c].y, 0, 0x4140), base, best[2]);
      best[3] = add_max(__byte_perm(bytes[c].y, 0, 0x4342), base, best[3]);
    }
  }
};

// Levels of the rows of the block's pages, and how many rows have each: a thread takes rows 8 i + g of a
// page, and asks for what it needs next before it counts.
__device__ inline void level_rows(const SparseBlock& block, const Estimates& from) {
  SparseShared& shared = block.shared;
  const int n = 8 * block.n_pages;
  const int g = (int)threadIdx.x % 8;
  const int n_fours = block.n_head_fours;
  FourEstimates ahead;
  if ((int)threadIdx.x < n) ahead.load(from, (int)threadIdx.x / 8 * n_fours, (int)threadIdx.x / 8, g);
#pragma unroll 1
  for (int i = (int)threadIdx.x; i < n; i += (int)blockDim.x) {
    const int page = i / 8;
    const int next = (i + (int)blockDim.x) / 8;
    uint32_t best[4] = {};  // two rows each
#pragma unroll 1
    for (int four = 0; four < n_fours; ++four) {
      const FourEstimates own = ahead;
      if (four + 1 < n_fours) {
        ahead.load(from, page * n_fours + four + 1, page, g);
      } else if (next < block.n_pages) {
        ahead.load(from, next * n_fours, next, g);
      }
      own.raise(shared.offsets + 4 * four, best);
    }
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const int level = (int)(best[j / 2] >> (16 * (j % 2)) & 0xffffu);
      if (level > 0) atomicAdd(&shared.counts[level], 1);
    }
    *from.levels_at(page, i % 8) = {__byte_perm(best[0], best[1], 0x6420),
                                    __byte_perm(best[2], best[3], 0x6420)};
  }
}

// counts: of every block of the cluster, levels 1 .. 255. A level a thread.
__device__ __noinline__ inline ClusterLimit find_limit(SparseShared& shared, const int* counts, int n_wanted,
                                                       int n_blocks, int own_rank) {
  const int level = (int)threadIdx.x;
  int all = 0, earlier = 0, own = 0;
  if (level > 0 && level < kLevels) {
#pragma unroll 4
    for (int rank = 0; rank < n_blocks; ++rank) {
      const int n = of_block(counts, rank)[level];
      all += n;
      if (rank < own_rank) earlier += n;
      if (rank == own_rank) own = n;
    }
  }
  const LaterSums sums = sums_of_later_threads(all, earlier);
  const int above = sums.later.x;
  if (sums.all.x < n_wanted || n_wanted <= 0) {  // all there are, or none
    if (level == 0) shared.limit = {n_wanted > 0 ? 1 : kLevels, INT_MAX, n_wanted > 0 ? sums.all.y : 0};
  } else if (above < n_wanted && above + all >= n_wanted) {
    const int left = n_wanted - above - (all - earlier - own);
    shared.limit = {level, max(0, min(own, left)), sums.later.y + max(0, min(earlier, left - own))};
  }
  __syncthreads();
  return shared.limit;
}

// Which of eight levels are at least `level` (1..255): bit 8 j for level j.
__device__ __forceinline__ uint64_t levels_at_least(uint2 levels, int level) {
  const uint32_t wanted = (uint32_t)level * 0x01010101u;
  return __vsetgeu4(levels.x, wanted) | (uint64_t)__vsetgeu4(levels.y, wanted) << 32;
}

__device__ __forceinline__ uint64_t or_of_eight_lanes(uint64_t x) {
  for (int lanes = 1; lanes < 8; lanes *= 2) x |= __shfl_xor_sync(kAllLanes, x, lanes);
  return x;
}

// Pages of a thread: neighbours.
struct PageRange {
  int begin;
  int end;
};
__device__ __forceinline__ PageRange pages_of_thread(int n_pages) {
  const int each = (n_pages + (int)blockDim.x - 1) / (int)blockDim.x;
  const int begin = min((int)threadIdx.x * each, n_pages);
  return {begin, min(begin + each, n_pages)};
}

// Marks of the block's pages: rows above the limit and at it, eight threads a page.
__device__ inline void compare_levels(const SparseBlock& block, const Estimates& from, int level) {
  const int n = (8 * block.n_pages + 31) / 32 * 32;
#pragma unroll 1
  for (int i = (int)threadIdx.x; i < n; i += (int)blockDim.x) {
    const int page = i / 8;
    uint2 levels = {0, 0};
    if (page < block.n_pages) levels = *from.levels_at(page, i % 8);
    const uint64_t above = level + 1 < kLevels ? levels_at_least(levels, level + 1) : 0;
    const uint64_t equal = level < kLevels ? levels_at_least(levels, level) & ~above : 0;
    const PageMarks of_page = {or_of_eight_lanes(above << i % 8), or_of_eight_lanes(equal << i % 8)};
    if (page < block.n_pages && i % 8 == 0) from.marks[page] = of_page;
  }
}

// marks of a page become its word and the place of its first candidate (in the bytes of its marks).
__device__ inline int settle_marks(const SparseBlock& block, int n_ties, PageMarks* marks) {
  const PageRange range = pages_of_thread(block.n_pages);
  int n_above = 0, n_equal = 0;
#pragma unroll 1
  for (int page = range.begin; page < range.end; ++page) {
    n_above += __popcll(marks[page].above);
    n_equal += __popcll(marks[page].equal);
  }
  const LaterSums sums = sums_of_later_threads(n_above, n_equal);
  const int n = sums.all.x + min(sums.all.y, n_ties);
  int left = max(0, n_ties - sums.later.y);
  int first = n - sums.later.x - min(sums.later.y, n_ties);  // behind this thread's rows
#pragma unroll 1
  for (int page = range.end - 1; page >= range.begin; --page) {
    uint64_t equal = marks[page].equal;
    int n_page = __popcll(equal);
    for (; n_page > left; --n_page) equal &= equal - 1;  // the oldest go
    left -= n_page;
    const uint64_t word = marks[page].above | equal;
    first -= __popcll(word);
    marks[page] = {word, (uint64_t)first};
  }
  __syncthreads();
  return n;
}

// All rows but the sinks.
__device__ inline void mark_all(const SparseBlock& block, PageMarks* marks) {
#pragma unroll 1
  for (int page = (int)threadIdx.x; page < block.n_pages; page += (int)blockDim.x) {
    const int n_sinks = page == 0 ? block.n_sinks() : 0;
    marks[page] = {n_sinks >= 64 ? 0 : ~uint64_t{0} << n_sinks, 0};
  }
}

}  // namespace quire::cuda
