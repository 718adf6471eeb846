// The shared memory of a block of the sparse kernel; the same on host and device.
#pragma once

#include "base/half.h"
#include "kernels/cuda/sparse_attention.h"

namespace quire::cuda {

constexpr int kMostSparseWarps = 16;
constexpr int kMostClusterBlocks = 16;
constexpr int kCachedNumbers = 1024;  // of pages of a block
constexpr int kQueryPlanes = 6;       // bits of a rounded query, sign included
constexpr float kLargestQueryCode = 31.0f;

constexpr int kLevels = 256;

// Keys of a tile of 16 exact rows in shared memory; its values have as many (exact_rows.cuh).
QUIRE_INLINE constexpr int exact_stage_bytes(int head_dim) { return 16 * (2 * head_dim + 16); }

// Offsets in bytes behind the tables.
struct SparseLayout {
  int numbers;
  int framed;
  int query_bits;
  int factors;
  int coded;
  int exact_stages;
  int exact_states;
  int masses;
  int sums;  // where warps hand over outputs: the area, unless candidates are read once for every tile of
             // heads
  int area;
};

// Outputs of half the warps, while they are added up.
QUIRE_INLINE int handed_bytes(int head_dim, int n_warps) {
  return n_warps / 2 * ((head_dim + 127) / 128) * 4096;
}

QUIRE_INLINE SparseLayout sparse_layout(int group, int head_dim, int n_warps, int exact_warps, bool by_mass) {
  const int stage_bytes = exact_stage_bytes(head_dim);
  const int depths = (head_dim + 127) / 128;
  const int tiles = (group + kTileHeads - 1) / kTileHeads;
  SparseLayout layout;
  layout.numbers = 0;
  layout.framed = layout.numbers + 4 * kCachedNumbers;
  layout.query_bits = layout.framed + 4 * head_dim * ((group + 1) / 2 * 2);
  layout.factors = layout.query_bits + (group + 3) / 4 * (kQueryPlanes / 2) * depths * 128;
  layout.coded = layout.factors + tiles * 8 * depths * 256;
  layout.exact_stages = layout.coded + tiles * kTileHeads * head_dim * 4;
  layout.exact_states = layout.exact_stages + exact_warps * 2 * stage_bytes;
  layout.masses = layout.exact_states + exact_warps * tiles * kTileHeads * (head_dim + 2) * 4;
  layout.sums = layout.masses + (by_mass ? 4 * kLevels * group : 0);
  layout.area = layout.sums + (tiles > 1 ? handed_bytes(head_dim, n_warps) : 0);
  return layout;
}

// Rows of the table of pairs of centroids: bytes whose halves are codes of so many bits.
QUIRE_INLINE constexpr int pair_table_rows(int bits) { return ((1 << bits) - 1) * 17 + 1; }
constexpr int kPairRowBytes = 256;  // keys' 32 equal entries, then values'

// Estimates of a page for four heads: the best of each, float; and a byte for each row and head.
constexpr int kPageMaximaBytes = 16;
constexpr int kPageEstimateBytes = 256;

// Of a candidate: row, index among the candidates and level; scores; and all as spilled to the workspace.
constexpr int kListedCandidateBytes = 4 + 4 + 1;
QUIRE_INLINE int score_bytes(int group) { return 16 * ((group + 3) / 4); }
QUIRE_INLINE int candidate_bytes(int group) { return score_bytes(group) + kListedCandidateBytes; }
QUIRE_INLINE int spilled_candidate_bytes(int group) { return score_bytes(group) + 16; }
// Marks and levels of a page.
constexpr int kPageMarkBytes = 16;
constexpr int kPageLevelBytes = 64;

}  // namespace quire::cuda
