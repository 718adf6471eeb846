// The first step of the sparse kernel: estimates of all rows of a block's pages and the sums of their
// probabilities.
//
// Estimates are products of sign bits and the bit planes of a query rounded to 6 bits, counted by tensor
// cores: for signs s (1: positive) and q = sum_i 2^i q_i - 32 q_5,
//
//   sum_d (2 s_d - 1) q_d = 2 (sum_i 2^i |s and q_i| - 32 |s and q_5|) - sum_d q_d
//
// A warp takes a page. Lane 4 g + c has, of head c of four, the rows 8 i + g. Estimates are kept as bytes, in
// eighths of octaves below the page's best of that head:
//
//   bytes of a page, for four heads   [(c + page) mod 4][g][i]
//
// The level of a row is its best over the heads, and takes the place of the bytes of the first, unless there
// is room for levels in shared memory.
#pragma once

#include "kernels/cuda/device/sparse_block.cuh"

namespace quire::cuda {

// Of a page, bit t for row t: above the limit, and at it.
struct PageMarks {
  uint64_t above;
  uint64_t equal;
};
static_assert(sizeof(PageMarks) == kPageMarkBytes);

// Where estimates of the block's pages lie: in shared memory, or in the workspace. Marks may take the place
// of the maxima.
struct Estimates {
  float* maxima;   // [page][fours][4] eighths of octaves
  uint8_t* bytes;  // [page][fours][256]
  PageMarks* marks;
  uint8_t* levels;  // of a page at level_bytes * page + (turn * page) mod 256
  int level_bytes;
  int turn;

  // Of rows 8 i + g of a page, i = 0 .. 7.
  __device__ uint2* levels_at(int page, int g) const {
    return reinterpret_cast<uint2*>(levels + page * level_bytes + (turn * page & 255) + 8 * g);
  }
};

__device__ inline Estimates estimates_of(const SparseBlock& block) {
  const int maxima_bytes = block.n_head_fours * kPageMaximaBytes;
  const int bytes_each = block.n_head_fours * kPageEstimateBytes;
  uint8_t* maxima = block.area;
  uint8_t* bytes = maxima + block.n_pages * maxima_bytes;
  const bool is_spilled = block.n_pages * (maxima_bytes + bytes_each) > block.plan.area_bytes;
  if (is_spilled) {
    const int64_t stride = block.a.page_table_stride;
    maxima = static_cast<uint8_t*>(block.a.workspace) + block.pair * stride * (maxima_bytes + bytes_each);
    bytes = maxima + stride * maxima_bytes + (int64_t)block.first_page * bytes_each;
    maxima += (int64_t)block.first_page * maxima_bytes;
  }
  auto* found = reinterpret_cast<float*>(maxima);
  if (is_spilled && block.n_pages * (kPageMarkBytes + kPageLevelBytes) <= block.plan.area_bytes) {
    return {found,
            bytes,
            reinterpret_cast<PageMarks*>(block.area),
            block.area + block.n_pages * kPageMarkBytes,
            kPageLevelBytes,
            0};
  }
  return {found, bytes, reinterpret_cast<PageMarks*>(maxima), bytes, bytes_each, 64};
}

// Word `word` of a row of planes of kBytes bytes; zeros behind.
template <int kBytes>
__device__ __forceinline__ uint32_t plane_word(const uint8_t* row, int word) {
  if constexpr (kBytes % 4 == 0) {
    return 4 * word < kBytes ? *reinterpret_cast<const uint32_t*>(row + 4 * word) : 0;
  } else {
    static_assert(kBytes % 2 == 0);
    const uint32_t low = 4 * word < kBytes ? *reinterpret_cast<const uint16_t*>(row + 4 * word) : 0;
    const uint32_t high = 4 * word + 2 < kBytes ? *reinterpret_cast<const uint16_t*>(row + 4 * word + 2) : 0;
    return low | high << 16;
  }
}

template <int kHeadDim>
struct SignPage {
  uint32_t words[8][SparseShape<kHeadDim>::kDepths];  // of rows 8 i + g
  uint4 norms;                                        // f16 of the same rows

  __device__ void load(const uint8_t* index) {
    using Shape = SparseShape<kHeadDim>;
    const int g = lane_index() / 4;
    const int c = lane_index() % 4;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
#pragma unroll
      for (int depth = 0; depth < Shape::kDepths; ++depth) {
        words[i][depth] =
            plane_word<Shape::kPlaneBytes>(index + (8 * i + g) * Shape::kPlaneBytes, 4 * depth + c);
      }
    }
    norms = *reinterpret_cast<const uint4*>(index + 64 * Shape::kPlaneBytes + 16 * g);
  }
  __device__ float norm(int i) const {
    const uint32_t two[4] = {norms.x, norms.y, norms.z, norms.w};
    return __half2float(__ushort_as_half((uint16_t)(two[i / 2] >> (16 * (i % 2)))));
  }
};

// A lane's part of the bit planes of four heads.
template <int kHeadDim>
struct QueryBits {
  using Shape = SparseShape<kHeadDim>;
  uint32_t bits[Shape::kPairs][Shape::kDepths];

  __device__ void load(const SparseBlock& block, int four) {
#pragma unroll
    for (int j = 0; j < Shape::kPairs; ++j) {
#pragma unroll
      for (int depth = 0; depth < Shape::kDepths; ++depth)
        bits[j][depth] =
            block.query_bits[((four * Shape::kPairs + j) * Shape::kDepths + depth) * 32 + lane_index()];
    }
  }
};

// Products of the eight rows and the head of this lane, as floats kRoundingFloat too large.
template <int kHeadDim>
__device__ __forceinline__ void sign_products(const SignPage<kHeadDim>& page,
                                              const QueryBits<kHeadDim>& query, float (&products)[8]) {
  using Shape = SparseShape<kHeadDim>;
#pragma unroll
  for (int tile = 0; tile < 4; ++tile) {
    int counts[Shape::kPairs][4] = {};
#pragma unroll
    for (int j = 0; j < Shape::kPairs; ++j) {
#pragma unroll
      for (int depth = 0; depth < Shape::kDepths; ++depth)
        count_common_bits(counts[j], page.words[2 * tile][depth], page.words[2 * tile + 1][depth],
                          query.bits[j][depth], counts[j]);
    }
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      int sum = -counts[Shape::kPairs - 1][2 * row + 1];  // the sign's plane
      sum = 2 * sum + counts[Shape::kPairs - 1][2 * row];
#pragma unroll
      for (int j = Shape::kPairs - 2; j >= 0; --j) {
        sum = 2 * sum + counts[j][2 * row + 1];
        sum = 2 * sum + counts[j][2 * row];
      }
      products[2 * tile + row] = __int_as_float(2 * sum + kRoundingBits);
    }
  }
}

// Eight numbers as bytes: kRoundingFloat more than they are, so whole, and less than 256.
__device__ __forceinline__ uint2 rounded_bytes(const float (&x)[8]) {
  uint32_t four[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    uint32_t bits[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) bits[i] = __float_as_uint(fmaxf(x[4 * half + i], kRoundingFloat));
    four[half] =
        __byte_perm(__byte_perm(bits[0], bits[1], 0x0040), __byte_perm(bits[2], bits[3], 0x0040), 0x5410);
  }
  return {four[0], four[1]};
}

__device__ __forceinline__ void store_estimates(const Estimates& to, int at, int page,
                                                const float (&octaves)[8]) {
  const int g = lane_index() / 4;
  const int c = lane_index() % 4;
  float best = octaves[0];
#pragma unroll
  for (int i = 1; i < 8; ++i) best = fmaxf(best, octaves[i]);
#pragma unroll
  for (int lanes = 4; lanes < 32; lanes *= 2) best = fmaxf(best, __shfl_xor_sync(kAllLanes, best, lanes));
  // Up: rounded to the nearest it could be half a level too low, and a level above the highest is the lowest.
  best = ceilf(best * kLevelsOfOctave);
  const float base = kRoundingFloat + (kLevels - 1) - best;
  float levels[8];
#pragma unroll
  for (int i = 0; i < 8; ++i) levels[i] = octaves[i] * kLevelsOfOctave + base;
  *reinterpret_cast<uint2*>(to.bytes + at * kPageEstimateBytes + (c + page) % 4 * 64 + 8 * g) =
      rounded_bytes(levels);
  if (g == 0) to.maxima[4 * at + c] = fmaxf(best, -1e7f);  // no row: -inf
}

// Pages of a warp, every n_warps-th, in registers, which nothing may move: one group is worked on while the
// other is to arrive.
template <int kHeadDim>
struct SignPages {
  static constexpr int kGroup = kHeadDim > 128 ? 1 : 2;
  SignPage<kHeadDim> groups[2][kGroup];

  __device__ __forceinline__ void load(const SparseBlock& block, int group, int page) {
#pragma unroll
    for (int i = 0; i < kGroup; ++i) {
      const int at = page + i * (int)blockDim.x / 32;
      if (at < block.n_pages) groups[group][i].load(block.page_of(block.index, at));
    }
  }
  __device__ __forceinline__ void wait(int group) const {
    wait_for_register(groups[group][kGroup - 1].norms.w);
  }
};

// The first pages of this warp to the second-level cache, while queries are made ready.
template <int kHeadDim>
__device__ __forceinline__ void fetch_first_pages(const SparseBlock& block) {
  constexpr int kLines = SparseShape<kHeadDim>::kPlaneBytes / 2 + 1;  // of 128 bytes
  const int page = warp_index() + lane_index() / kLines * (int)blockDim.x / 32;
  if (page >= block.n_pages) return;
  const uint8_t* line = block.page_of(block.index, page) + lane_index() % kLines * 128;
  asm volatile("prefetch.global.L2 [%0];" ::"l"(line));
}

template <int kHeadDim>
__device__ __forceinline__ void estimate_page(const SparseBlock& block, const SignPage<kHeadDim>& signs,
                                              const QueryBits<kHeadDim>& query, float offset, float scale,
                                              int page, OctaveSum& seen, const Estimates& to, int four) {
  float octaves[8];
  sign_products(signs, query, octaves);
#pragma unroll
  for (int i = 0; i < 8; ++i) octaves[i] = (octaves[i] - offset) * (signs.norm(i) * scale);
  if (page == 0 && block.n_sinks() > 0) {
    __syncwarp();  // a branch, and not eight choices for every page
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      if (8 * i + lane_index() / 4 < block.n_sinks()) octaves[i] = -CUDART_INF_F;
    }
  }
  seen.add(octaves);
  store_estimates(to, page * block.n_head_fours + four, page, octaves);
}

// All pages of the block for four heads, and the sums of their probabilities to warp_sums.
template <int kHeadDim>
__device__ void estimate_pages(const SparseBlock& block, const Estimates& to, int four) {
  constexpr int kGroup = SignPages<kHeadDim>::kGroup;
  SparseShared& shared = block.shared;
  const int n_warps = (int)blockDim.x / 32;
  const int head = 4 * four + lane_index() % 4;
  const float offset = shared.estimate_offset[head];
  const float scale = shared.estimate_scale[head];
  QueryBits<kHeadDim> query;
  query.load(block, four);
  OctaveSum seen;
  SignPages<kHeadDim> pages;
  pages.load(block, 0, warp_index());
#pragma unroll 1
  for (int first = warp_index(); first < block.n_pages; first += 2 * kGroup * n_warps) {
#pragma unroll
    for (int group = 0; group < 2; ++group) {
      const int of_group = first + group * kGroup * n_warps;
      if (of_group >= block.n_pages) break;
      pages.wait(group);
      pages.load(block, 1 - group, of_group + kGroup * n_warps);
#pragma unroll
      for (int i = 0; i < kGroup; ++i) {
        const int page = of_group + i * n_warps;
        if (page < block.n_pages)
          estimate_page(block, pages.groups[group][i], query, offset, scale, page, seen, to, four);
      }
    }
  }
  for (int lanes = 4; lanes < 32; lanes *= 2) seen.add_lane(lanes);
  if (lane_index() < 4) shared.warp_sums[warp_index()][head] = {seen.top, seen.sum};
}

}  // namespace quire::cuda
