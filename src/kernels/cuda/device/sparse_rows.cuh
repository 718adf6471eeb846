// The second step of the sparse kernel: scores of the candidates by their codes, and the rows kept. Rows are
// read where they lie, sixteen to a tile of a warp.
//
// Codes come in bit planes, but for keys of four bits. Planes of the same 32 numbers become four words of
// eight nibbles, word i of numbers 4 k + i; a byte of them is the codes of two numbers, and is looked up in a
// table of pairs of centroids that has a column for every lane. So a register holds numbers 8 m + i and 8 m +
// i + 4 of a key, both along the depth of the product. Values are summed along rows: there a byte is put
// together from a nibble of either of two rows.
#pragma once

#include "kernels/cuda/device/page_source.cuh"
#include "kernels/cuda/device/sparse_levels.cuh"

namespace quire::cuda {

// By warps first, first + step, ...
template <int kBits>
__device__ void make_pair_table(uint8_t* table, int column, const uint16_t* centroids, int first, int step) {
  const uint32_t own = centroids[lane_index() % 16];
#pragma unroll 2
  for (int i = first; i < 1 << (2 * kBits); i += step) {
    const uint32_t low = __shfl_sync(kAllLanes, own, i % (1 << kBits));
    const uint32_t high = __shfl_sync(kAllLanes, own, i >> kBits);
    const int row = i % (1 << kBits) + 16 * (i >> kBits);
    *reinterpret_cast<uint32_t*>(table + kPairRowBytes * row + column + 4 * lane_index()) = low | high << 16;
  }
}

// The pair of byte m of a word of nibbles. lane: column + 4 lane_index().
__device__ __forceinline__ uint32_t look_up_pair(const uint8_t* table, uint32_t lane, uint32_t nibbles,
                                                 int m) {
  return *reinterpret_cast<const uint32_t*>(table + __byte_perm(nibbles, lane, 0x5504 | m << 4));
}

// planes: the highest bit first.
template <int kBits>
__device__ __forceinline__ void to_nibbles(const uint32_t (&planes)[kBits], uint32_t (&nibbles)[4]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    nibbles[i] = 0;
#pragma unroll
    for (int p = 0; p < kBits; ++p) {
      const int bit = kBits - 1 - p;
      const uint32_t moved = bit >= i ? planes[p] << (bit - i) : planes[p] >> (i - bit);
      nibbles[i] |= moved & 0x11111111u << bit;
    }
  }
}

__device__ inline CandidateArrays candidate_arrays(uint8_t* scores, uint8_t* listed, int n) {
  auto* rows = reinterpret_cast<uint32_t*>(listed);
  return {reinterpret_cast<float*>(scores), rows, rows + n, reinterpret_cast<uint8_t*>(rows + 2 * n)};
}

// For n candidates of this block, n_before of blocks before it; the area begins with the marks. Where all
// that is known of candidates is too much for the area, scores are spilled to the workspace, or everything.
__device__ inline CandidateArrays arrays_for(const SparseBlock& block, int n, int n_before) {
  const int marks_bytes = kPageMarkBytes * block.n_pages;
  const int scores_bytes = n * score_bytes(block.a.group);
  uint8_t* area = block.area + marks_bytes;
  const int room = block.plan.area_bytes - 3;  // levels are read by fours
  if (marks_bytes + n * candidate_bytes(block.a.group) <= room)
    return candidate_arrays(area, area + scores_bytes, n);
  const int64_t at = (int64_t)block.pair * block.plan.most_candidates + n_before;
  uint8_t* spilled = static_cast<uint8_t*>(block.a.workspace) + block.plan.candidates_offset +
                     at * spilled_candidate_bytes(block.a.group);
  const bool has_lists = marks_bytes + n * kListedCandidateBytes <= room;
  return candidate_arrays(spilled, has_lists ? area : spilled + scores_bytes, n);
}

// The candidates of the pages, in order; a warp a page, whose lanes know the marks of 32 pages.
__device__ inline void list_candidates(const SparseBlock& block, const PageMarks* marks,
                                       const CandidateArrays& to) {
  const int n_warps = (int)blockDim.x / 32;
  const uint32_t lanes_before = (1u << lane_index()) - 1;
#pragma unroll 1
  for (int first = warp_index(); first < block.n_pages; first += 32 * n_warps) {
    const int own = first + lane_index() * n_warps;
    const PageMarks of_lane = own < block.n_pages ? marks[own] : PageMarks{0, 0};
#pragma unroll 2
    for (int i = 0; i < 32 && first + i * n_warps < block.n_pages; ++i) {
      const uint32_t low = __shfl_sync(kAllLanes, (uint32_t)of_lane.above, i);
      const uint32_t high = __shfl_sync(kAllLanes, (uint32_t)(of_lane.above >> 32), i);
      uint32_t* rows = to.rows + __shfl_sync(kAllLanes, (uint32_t)of_lane.equal, i);
      const uint32_t row = (uint32_t)(64 * (first + i * n_warps) + lane_index());
      if (low >> lane_index() & 1) rows[__popc(low & lanes_before)] = row;
      if (high >> lane_index() & 1) rows[__popc(low) + __popc(high & lanes_before)] = row + 32;
    }
  }
}

// Words of four bytes, as many as a key has planes.
template <int kBits>
__device__ __forceinline__ void load_words(const uint8_t* from, uint32_t (&words)[kBits]) {
  if constexpr (kBits == 4) {
    const uint4 x = *reinterpret_cast<const uint4*>(from);
    words[0] = x.x, words[1] = x.y, words[2] = x.z, words[3] = x.w;
  } else if constexpr (kBits == 2) {
    const uint2 x = *reinterpret_cast<const uint2*>(from);
    words[0] = x.x, words[1] = x.y;
  } else {
#pragma unroll
    for (int i = 0; i < kBits; ++i) words[i] = reinterpret_cast<const uint32_t*>(from)[i];
  }
}

template <int kHeadDim, int kBits>
struct KeyTile {
  using Shape = SparseShape<kHeadDim>;
  uint32_t planes[2][Shape::kDepths][kBits];  // of rows g and g + 8; words of nibbles where kBits is 4
  uint32_t norms[2];

  template <class Source>
  __device__ void load(const Source& source, const SparseBlock& block, const uint32_t* rows, int tile,
                       int n) {
    constexpr int kRowBytes = sparse_key_row_bytes(kBits, kHeadDim);
    const int g = lane_index() / 4;
    const int c = lane_index() % 4;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int candidate = min(16 * tile + 8 * half + g, n - 1);
      const uint32_t row = rows[candidate];
      const int token = (int)(row % 64);
      const uint8_t* codes = source.template key<kRowBytes>(block, row, candidate);
#pragma unroll
      for (int depth = 0; depth < Shape::kDepths; ++depth) {
        const int word = 4 * depth + c;
        if (word * 4 * kBits < kRowBytes) {
          load_words<kBits>(codes + word * 4 * kBits, planes[half][depth]);
        } else {
#pragma unroll
          for (int p = 0; p < kBits; ++p) planes[half][depth][p] = 0;
        }
      }
      norms[half] =
          *reinterpret_cast<const uint16_t*>(block.page_of(block.index, (int)(row / 64)) +
                                             64 * Shape::kPlaneBytes + 2 * (8 * (token % 8) + token / 8));
    }
  }

  __device__ uint32_t last_loaded() const {
    return planes[1][Shape::kDepths - 1][kBits - 1] | norms[1] << 16;
  }

  // s: rows g and g + 8, heads 2 c and 2 c + 1 of the tile.
  __device__ void score(const SparseBlock& block, int head_tile, float (&s)[4]) const {
    const uint32_t lane = 4 * lane_index();
    const uint2* factors = block.factors + head_tile * Shape::kKeySteps * 32 + lane_index();
#pragma unroll
    for (int depth = 0; depth < Shape::kDepths; ++depth) {
      uint32_t nibbles[2][4];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        if constexpr (kBits == 4) {  // they lie so
#pragma unroll
          for (int i = 0; i < 4; ++i) nibbles[half][i] = planes[half][depth][i];
        } else {
          to_nibbles<kBits>(planes[half][depth], nibbles[half]);
        }
      }
#pragma unroll
      for (int step = 0; step < 8; ++step) {
        uint32_t a[4];
#pragma unroll
        for (int k = 0; k < 4; ++k)
          a[k] = look_up_pair(shared_memory(), lane, nibbles[k % 2][step / 2], step % 2 * 2 + k / 2);
        const uint2 q = factors[(8 * depth + step) * 32];
        const uint32_t b[2] = {q.x, q.y};
        multiply_add(__half{}, s, a, b);
      }
    }
  }
};

// Scores of the block's n candidates for the heads of one tile, and their sums to warp_sums.
template <int kHeadDim, int kBits, class Source>
__device__ void score_candidates(const Source& source, const SparseBlock& block,
                                 const CandidateArrays& arrays, int n, int head_tile) {
  SparseShared& shared = block.shared;
  const int n_warps = (int)blockDim.x / 32;
  const int n_tiles = (n + 15) / 16;
  const int g = lane_index() / 4;
  const int slots = block.score_slots();
  const int head = head_tile * kTileHeads + 2 * (lane_index() % 4);
  const float scale[2] = {shared.score_scale[head], shared.score_scale[head + 1]};
  const float bias[2] = {shared.bias[head], shared.bias[head + 1]};
  OctaveSum seen[2];
  KeyTile<kHeadDim, kBits> tiles[2];  // one is worked on while the other is to arrive
  const auto score = [&](const KeyTile<kHeadDim, kBits>& tile, int at) {
    float s[4] = {};
    tile.score(block, head_tile, s);
    float octaves[2][2];  // [head][row]
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = 16 * at + 8 * half + g;
      const float norm = __half2float(__ushort_as_half((uint16_t)tile.norms[half]));
      const float2 both = {s[2 * half] * (norm * scale[0]) + bias[0],
                           s[2 * half + 1] * (norm * scale[1]) + bias[1]};
      if (row < n && head < slots)
        *reinterpret_cast<float2*>(arrays.scores + (int64_t)row * slots + head) = both;
      octaves[0][half] = row < n ? both.x : -CUDART_INF_F;
      octaves[1][half] = row < n ? both.y : -CUDART_INF_F;
    }
    seen[0].add(octaves[0]);
    seen[1].add(octaves[1]);
  };
  if (warp_index() < n_tiles) tiles[0].load(source, block, arrays.rows, warp_index(), n);
#pragma unroll 1
  for (int first = warp_index(); first < n_tiles; first += 2 * n_warps) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int at = first + i * n_warps;
      if (at >= n_tiles) break;
      wait_for_register(tiles[i].last_loaded());
      if (at + n_warps < n_tiles) tiles[1 - i].load(source, block, arrays.rows, at + n_warps, n);
      score(tiles[i], at);
    }
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    for (int lanes = 4; lanes < 32; lanes *= 2) seen[i].add_lane(lanes);
    if (g == 0) shared.warp_sums[warp_index()][head + i] = {seen[i].top, seen[i].sum};
  }
}

// Log-sums of exact rows and candidates, and what weights are relative to. A warp a head.
__device__ inline void find_log_sums(const SparseBlock& block) {
  SparseShared& shared = block.shared;
#pragma unroll 1
  for (int head = warp_index(); head < block.a.group; head += (int)blockDim.x / 32) {
    const float2 scores = sum_blocks(shared.score_sums, block.n_blocks, head);
    OctaveSum all;
    all.add(sum_blocks(shared.exact_sums, block.n_blocks, head));
    all.add(scores);
    if (lane_index() == 0) {
      shared.references[head] = scores.x;
      shared.log_sums[head] = all.octaves();
    }
  }
  for (int head = block.a.group + (int)threadIdx.x; head < kMostSparseHeads; head += (int)blockDim.x)
    shared.log_sums[head] = CUDART_INF_F;
}

__device__ __forceinline__ int level_of(float octaves) {
  return min(max((int)floorf(fmaxf(octaves, -64.0f) * kLevelsOfOctave) + kLevels, 0), kLevels - 1);
}

// Levels of the candidates by their scores, and how many have each. Scores may lie in the workspace, so that
// several are asked for at a time.
__device__ inline void level_candidates(const SparseBlock& block, const CandidateArrays& arrays, int n) {
  constexpr int kTogether = 4;
  SparseShared& shared = block.shared;
  const int slots = block.score_slots();
  const int step = (int)blockDim.x;
#pragma unroll 1
  for (int first = (int)threadIdx.x; first < n; first += kTogether * step) {
    float best[kTogether];
#pragma unroll
    for (int j = 0; j < kTogether; ++j) best[j] = -CUDART_INF_F;
#pragma unroll 1
    for (int four = 0; four < block.n_head_fours; ++four) {
      const float4 sums = *reinterpret_cast<const float4*>(shared.log_sums + 4 * four);  // inf: no such head
      float4 scores[kTogether];
#pragma unroll
      for (int j = 0; j < kTogether; ++j) {
        const int64_t i = min(first + j * step, n - 1);
        scores[j] = *reinterpret_cast<const float4*>(arrays.scores + i * slots + 4 * four);
      }
#pragma unroll
      for (int j = 0; j < kTogether; ++j) {
        best[j] = fmaxf(best[j], fmaxf(fmaxf(scores[j].x - sums.x, scores[j].y - sums.y),
                                       fmaxf(scores[j].z - sums.z, scores[j].w - sums.w)));
      }
    }
#pragma unroll
    for (int j = 0; j < kTogether; ++j) {
      if (first + j * step >= n) break;
      const int level = level_of(best[j]);
      arrays.levels[first + j * step] = (uint8_t)level;
      if (level > 0) atomicAdd(&shared.score_counts[level], 1);
    }
  }
}

// The candidates that `keeps` holds for, in order, to kept; the count to n_kept.
template <class Keeps>
__device__ void list_kept(const SparseBlock& block, const CandidateArrays& arrays, int n,
                          const Keeps& keeps) {
  const PageRange range = pages_of_thread(n);
  int n_own = 0;
#pragma unroll 1
  for (int i = range.begin; i < range.end; ++i) n_own += keeps(i);
  const LaterSums sums = sums_of_later_threads(n_own, 0);
  int at = sums.all.x - sums.later.x - n_own;
#pragma unroll 1
  for (int i = range.begin; i < range.end; ++i) {
    if (keeps(i)) arrays.kept[at++] = (uint32_t)i;
  }
  if (threadIdx.x == 0) block.shared.n_kept = sums.all.x;
  __syncthreads();
}

// Of four levels, those above the limit and those at it: the upper bit of each byte.
struct LevelMasks {
  uint32_t above;
  uint32_t equal;
};
// Of candidates 4 i .. 4 i + 3 of n.
__device__ __forceinline__ LevelMasks masks_at(const CandidateArrays& arrays, int i, int n, int level) {
  uint32_t levels = reinterpret_cast<const uint32_t*>(arrays.levels)[i];
  if (4 * i + 4 > n) levels &= (1u << 8 * (n - 4 * i)) - 1;  // level 0 is never wanted
  const uint32_t wanted = (uint32_t)level * 0x01010101u;
  return {level < kLevels ? __vcmpgtu4(levels, wanted) & 0x80808080u : 0,
          level < kLevels ? __vcmpeq4(levels, wanted) & 0x80808080u : 0};
}

// Those above the limit, and the newest at it.
__device__ inline void keep_by_rank(const SparseBlock& block, const CandidateArrays& arrays, int n,
                                    const ClusterLimit& limit) {
  const PageRange range = pages_of_thread((n + 3) / 4);
  int n_above = 0, n_equal = 0;
#pragma unroll 4
  for (int i = range.begin; i < range.end; ++i) {
    const LevelMasks masks = masks_at(arrays, i, n, limit.level);
    n_above += __popc(masks.above);
    n_equal += __popc(masks.equal);
  }
  const LaterSums sums = sums_of_later_threads(n_above, n_equal);
  const int n_kept = sums.all.x + min(sums.all.y, limit.n_ties);
  int left = max(0, limit.n_ties - sums.later.y);
  int at = n_kept - sums.later.x - min(sums.later.y, limit.n_ties);
#pragma unroll 1
  for (int i = range.end - 1; i >= range.begin; --i) {
    const LevelMasks masks = masks_at(arrays, i, n, limit.level);
#pragma unroll 1
    for (uint32_t rest = masks.above | masks.equal; rest != 0;) {
      const int bit = 31 - __clz((int)rest);
      rest ^= 1u << bit;
      if ((masks.above >> bit & 1) != 0 || left-- > 0) arrays.kept[--at] = (uint32_t)(4 * i + bit / 8);
    }
  }
  if (threadIdx.x == 0) block.shared.n_kept = n_kept;
  __syncthreads();
}

// Shares of the mass by level, in units of 2^-31, of every head: masses [group][kLevels], of this block.
__device__ inline void sum_masses(const SparseBlock& block, const CandidateArrays& arrays, int n,
                                  uint32_t* masses) {
  for (int i = (int)threadIdx.x; i < block.a.group * kLevels; i += (int)blockDim.x) masses[i] = 0;
  __syncthreads();
  for (int i = (int)threadIdx.x; i < n; i += (int)blockDim.x) {
    for (int head = 0; head < block.a.group; ++head) {
      const float octaves =
          arrays.scores[(int64_t)i * block.score_slots() + head] - block.shared.log_sums[head];
      const float share = fminf(exp2f(octaves), 1.0f) * 0x1p31f;
      atomicAdd(&masses[head * kLevels + level_of(octaves)], (uint32_t)__float2uint_rn(share));
    }
  }
}

// The least level that each head keeps: rows down to it and the exact rows hold the share `mass` of both. A
// warp a head; lanes have eight levels each.
__device__ inline void find_least_levels(const SparseBlock& block, const uint32_t* masses, double mass) {
  SparseShared& shared = block.shared;
  for (int head = warp_index(); head < block.a.group; head += (int)blockDim.x / 32) {
    uint64_t own[8];
    uint64_t sum = 0;
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      own[j] = 0;
#pragma unroll 1
      for (int rank = 0; rank < block.n_blocks; ++rank)
        own[j] += of_block(masses, rank)[head * kLevels + 8 * lane_index() + j];
      sum += own[j];
    }
    uint64_t later = sum;  // of this lane and those behind it
    for (int lanes = 1; lanes < 32; lanes *= 2) {
      const uint64_t other = __shfl_down_sync(kAllLanes, later, lanes);
      if (lane_index() + lanes < 32) later += other;
    }
    const uint64_t all = __shfl_sync(kAllLanes, later, 0);
    const float exact_octaves =
        octaves_of(sum_blocks(shared.exact_sums, block.n_blocks, head)) - shared.log_sums[head];
    const double exact = (double)exp2f(exact_octaves) * 0x1p31;
    const double wanted = mass * (exact + (double)all);
    // The lowest level of this lane whose sum of later ones does not do yet.
    int least = exact >= wanted ? kLevels : 0;
    uint64_t behind = later - sum;
#pragma unroll
    for (int j = 7; j >= 0; --j) {
      if (exact + (double)behind < wanted && exact + (double)(behind + own[j]) >= wanted)
        least = 8 * lane_index() + j;
      behind += own[j];
    }
    least = __reduce_max_sync(kAllLanes, least);
    if (lane_index() == 0) shared.least[head] = least;
  }
}

__device__ inline void keep_by_mass(const SparseBlock& block, const CandidateArrays& arrays, int n) {
  list_kept(block, arrays, n, [&](int i) {
    bool keeps = false;
    for (int head = 0; head < block.a.group; ++head) {
      const float octaves =
          arrays.scores[(int64_t)i * block.score_slots() + head] - block.shared.log_sums[head];
      keeps |= level_of(octaves) >= block.shared.least[head];
    }
    return keeps;
  });
}

}  // namespace quire::cuda
