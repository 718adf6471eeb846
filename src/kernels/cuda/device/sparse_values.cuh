// The last step of the sparse kernel: attention to the values of the rows kept.
#pragma once

#include "kernels/cuda/device/sparse_rows.cuh"

namespace quire::cuda {

// The nibbles of a unit (sparse_attention.h), and nothing else.
template <int kBits>
__device__ __forceinline__ uint2 value_nibbles(uint2 unit) {
  if constexpr (kBits == 4) {
    return unit;
  } else if constexpr (kBits == 3) {
    const uint32_t low = __byte_perm(unit.y, 0, 0x1010);  // the lower half twice
    return {unit.x & 0x77777777u,
            (low & 0x00003333u) | (low >> 2 & 0x33330000u) | (unit.x >> 1 & 0x44444444u)};
  } else {
    return {unit.x & 0x33333333u, unit.x >> 2 & 0x33333333u};
  }
}

// Sixteen rows kept: of rows 2 c, 2 c + 1, 2 c + 8, 2 c + 9 what one head of the tile gives them, and their
// codes of dims 128 u + 16 g .. + 15.
template <int kHeadDim, int kBits>
struct ValueTile {
  using Shape = SparseShape<kHeadDim>;
  uint2 units[4][Shape::kDepths];
  float weights[4];  // until settled, scores
  uint32_t norms[4];

  // head: of the group, or one that nobody has.
  template <class Source>
  __device__ void load(const Source& source, const SparseBlock& block, const CandidateArrays& arrays,
                       int tile, int n, int head) {
    constexpr int kRowBytes = sparse_value_row_bytes(kHeadDim);
    const int g = lane_index() / 4;
    const int c = lane_index() % 4;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int at = 16 * tile + i / 2 * 8 + 2 * c + i % 2;
      const uint32_t candidate = arrays.kept[min(at, n - 1)];
      const uint32_t row = arrays.rows[candidate];
      const uint8_t* codes = source.template value<kRowBytes>(block, row, (int)candidate);
#pragma unroll
      for (int depth = 0; depth < Shape::kDepths; ++depth) {
        // Lanes of dims that there are not take what others have: nobody looks at their outputs.
        const int unit = min(8 * depth + g, kRowBytes / 8 - 1);
        units[i][depth] = *reinterpret_cast<const uint2*>(codes + 8 * unit);
      }
      if constexpr (kBits == 4) norms[i] = *source.template value_norm<kRowBytes>(block, row);
      weights[i] = at < n && head < block.a.group
                       ? arrays.scores[(int64_t)candidate * block.score_slots() + head]
                       : -CUDART_INF_F;
    }
  }

  __device__ uint32_t last_loaded() const {
    return kBits == 4 ? norms[3] << 16 | (units[3][Shape::kDepths - 1].y & 0xffff)
                      : units[3][Shape::kDepths - 1].y;
  }
  // When everything has arrived; the tile has n rows. reference: what weights are relative to.
  __device__ void settle(int n, float reference) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const bool has = i / 2 * 8 + 2 * (lane_index() % 4) + i % 2 < n;
      if constexpr (kBits < 4) norms[i] = units[i][0].y >> 16;
      norms[i] = has ? norms[i] : 0;
      weights[i] = power_of_two(weights[i] - reference);
    }
  }

  // Codes of rows 2 two and 2 two + 1 side by side in a byte: byte m of word s is of number 4 s + m.
  __device__ void join(int two, int depth, uint32_t (&bytes)[4]) const {
    const uint2 first = value_nibbles<kBits>(units[2 * two][depth]);
    const uint2 second = value_nibbles<kBits>(units[2 * two + 1][depth]);
    bytes[0] = (first.x & 0x0f0f0f0fu) | (second.x << 4 & 0xf0f0f0f0u);
    bytes[1] = (first.x >> 4 & 0x0f0f0f0fu) | (second.x & 0xf0f0f0f0u);
    bytes[2] = (first.y & 0x0f0f0f0fu) | (second.y << 4 & 0xf0f0f0f0u);
    bytes[3] = (first.y >> 4 & 0x0f0f0f0fu) | (second.y & 0xf0f0f0f0u);
  }

  // o [dims of a tile][heads] += values weights. unit: of the norms.
  __device__ void accumulate(float unit, float (&o)[Shape::kOutTiles][4]) const {
    const uint32_t lane = 128 + 4 * lane_index();
    float weighed[4];
#pragma unroll
    for (int i = 0; i < 4; ++i)
      weighed[i] = weights[i] * (__half2float(__ushort_as_half((uint16_t)norms[i])) * unit);
    const uint32_t b[2] = {pack(__half{}, weighed[0], weighed[1]), pack(__half{}, weighed[2], weighed[3])};
#pragma unroll
    for (int depth = 0; depth < Shape::kDepths; ++depth) {
      uint32_t bytes[2][4];
      join(0, depth, bytes[0]);
      join(1, depth, bytes[1]);
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        uint32_t a[4];
#pragma unroll
        for (int k = 0; k < 4; ++k)
          a[k] = look_up_pair(shared_memory(), lane, bytes[k / 2][i / 2], i % 2 * 2 + k % 2);
        multiply_add(__half{}, o[8 * depth + i], a, b);
      }
    }
  }
};

// Dim of outputs 16 r + 8 half + g (warp.cuh) of tile r.
__device__ __forceinline__ int value_dim(int tile, int half, int g) {
  return 128 * (tile / 8) + 16 * g + 2 * (tile % 8) + half;
}

// Attention of the heads of one tile to the kept rows: outputs to coded (of this block), sums of weights to
// coded_sums. The area is free afterwards.
template <int kHeadDim, int kBits, class Source>
__device__ void attend_kept(const Source& source, const SparseBlock& block, const CandidateArrays& arrays,
                            int n, int head_tile) {
  using Shape = SparseShape<kHeadDim>;
  SparseShared& shared = block.shared;
  const int n_warps = (int)blockDim.x / 32;
  const int n_tiles = (n + 15) / 16;
  const int g = lane_index() / 4;
  const int c = lane_index() % 4;
  const int head = head_tile * kTileHeads + g;
  const float reference = head < block.a.group ? shared.references[head] : 0.0f;
  float o[Shape::kOutTiles][4] = {};
  float sum = 0.0f;
  int exponent = -64;                   // of the power of two above the norms seen
  ValueTile<kHeadDim, kBits> tiles[2];  // one is worked on while the other is to arrive
  if (warp_index() < n_tiles) tiles[0].load(source, block, arrays, warp_index(), n, head);
#pragma unroll 1
  for (int first = warp_index(); first < n_tiles; first += 2 * n_warps) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int at = first + i * n_warps;
      if (at >= n_tiles) break;
      ValueTile<kHeadDim, kBits>& own = tiles[i];
      wait_for_register(own.last_loaded());
      if (at + n_warps < n_tiles) tiles[1 - i].load(source, block, arrays, at + n_warps, n, head);
      own.settle(n - 16 * at, reference);
      const uint32_t largest = max(max(own.norms[0], own.norms[1]), max(own.norms[2], own.norms[3]));
      const int of_tile = (int)(__reduce_max_sync(kAllLanes, largest) >> 10) - 14;
      if (of_tile > exponent) {
        const float down = __int_as_float((max(exponent - of_tile, -126) + 127) << 23);
#pragma unroll
        for (int tile = 0; tile < Shape::kOutTiles; ++tile) {
#pragma unroll
          for (int e = 0; e < 4; ++e) o[tile][e] *= down;
        }
        exponent = of_tile;
      }
      own.accumulate(__int_as_float((127 - exponent) << 23), o);
      sum += (own.weights[0] + own.weights[1]) + (own.weights[2] + own.weights[3]);
    }
  }
  sum += __shfl_xor_sync(kAllLanes, sum, 1);
  sum += __shfl_xor_sync(kAllLanes, sum, 2);
  const float unit = __int_as_float((exponent + 127) << 23);
#pragma unroll
  for (int tile = 0; tile < Shape::kOutTiles; ++tile) {
#pragma unroll
    for (int e = 0; e < 4; ++e) o[tile][e] *= unit;
  }
  __syncthreads();
  if (c == 0) shared.warp_sums[warp_index()][g].x = sum;
  // Each time the upper half of the warps that are left hands over to the lower.
  float* handed = block.sums;
#pragma unroll 1
  for (int left = n_warps / 2; left > 0; left /= 2) {
    if (warp_index() >= left && warp_index() < 2 * left) {
      float* to = handed + (warp_index() - left) * Shape::kOutTiles * 128 + lane_index();
#pragma unroll
      for (int i = 0; i < 4 * Shape::kOutTiles; ++i) to[32 * i] = o[i / 4][i % 4];
    }
    __syncthreads();
    if (warp_index() < left) {
      const float* from = handed + warp_index() * Shape::kOutTiles * 128 + lane_index();
#pragma unroll
      for (int i = 0; i < 4 * Shape::kOutTiles; ++i) o[i / 4][i % 4] += from[32 * i];
    }
    __syncthreads();
  }
  if (warp_index() == 0) {
    float* to = block.coded + head_tile * kTileHeads * kHeadDim;
#pragma unroll
    for (int i = 0; i < 4 * Shape::kOutTiles; ++i) {
      const int dim = value_dim(i / 4, i % 4 / 2, g);
      if (dim < kHeadDim) to[(2 * c + i % 2) * kHeadDim + dim] = o[i / 4][i % 4];
    }
  } else if (warp_index() == 1 && lane_index() < kTileHeads) {
    float all = 0.0f;
#pragma unroll 4
    for (int warp = 0; warp < n_warps; ++warp) all += shared.warp_sums[warp][lane_index()].x;
    shared.coded_sums[head_tile * kTileHeads + lane_index()] = all;
  }
  __syncthreads();
}

}  // namespace quire::cuda
