#include <algorithm>
#include <string>
#include <utility>

#include "base/error.h"
#include "kernels/cuda/device/sparse_layout.h"
#include "kernels/cuda/sparse_attention.h"

namespace quire::cuda {

namespace {

// Shared memory of a kernel that is not in its layout: SparseShared and what sums over a block need.
constexpr int kStaticBytes = 6656;
// Of a multiprocessor, and what every block on it takes besides.
constexpr int kMultiprocessorBytes = 228 * 1024;
constexpr int kReservedBytes = 1024;
constexpr int kMostExactWarps = 4;
constexpr int kMoreCandidates = 8;

size_t aligned(size_t n_bytes) { return (n_bytes + 255) / 256 * 256; }

void check_sizes(const SparseAttention& a, int key_bits, int value_bits) {
  if (!has_kernels(a.head_dim)) {
    throw Error("no CUDA kernel for heads of " + std::to_string(a.head_dim) +
                " values (64, 80, 96, 128, 256)");
  }
  if (a.group < 1 || a.group > kMostSparseHeads) {
    throw Error("sparse attention on the CUDA device is for 1 to " + std::to_string(kMostSparseHeads) +
                " query heads of a KV head, not " + std::to_string(a.group));
  }
  for (const RowPlane* plane : {&a.index, &a.keys, &a.values}) {
    if (plane->page_stride > INT32_MAX) {
      throw Error("sealed pages on the CUDA device may lie 2^31 - 1 bytes apart, not " +
                  std::to_string(plane->page_stride));
    }
  }
  if (a.n_sinks < 0 || a.n_sinks > 64) {
    throw Error("sparse attention on the CUDA device keeps 0 to 64 sinks, not " + std::to_string(a.n_sinks));
  }
  const bool equal = key_bits == value_bits && key_bits >= 2 && key_bits <= 4;
  if (!equal && !(key_bits == 4 && value_bits == 3)) {
    throw Error("no CUDA kernel for sparse attention with keys of " + std::to_string(key_bits) +
                " bits and values of " + std::to_string(value_bits));
  }
}

// Pages of the block that has most.
int pages_of_block(int n_pages, int n_blocks) { return (n_pages + n_blocks - 1) / n_blocks; }

int fours(int group) { return (group + 3) / 4; }
int estimate_bytes(int n_pages, int group) {
  return n_pages * fours(group) * (kPageMaximaBytes + kPageEstimateBytes);
}

// Microseconds, roughly: of a page of a pair for 16 warps, and of the steps of a pair besides.
constexpr double kPageTime = 0.23;
constexpr double kStepsTime = 34;

// A launch cut up so, with so many blocks on a multiprocessor; no memory: cost below 0.
struct Trial {
  SparsePlan plan;
  double cost;
};

Trial try_plan(const SparseAttention& a, int table_bytes, const SparseDevice& device, int n_blocks,
               int n_warps, int blocks_each) {
  const int n_pairs = a.n_sequences * a.n_kv_heads;
  // Exact rows count as tokens, and what they add is rounded up: a few rows more.
  const int most_candidates =
      sparse_counts(a.budget, 0, 64 * a.page_table_stride).n_candidates + kMoreCandidates;
  const int n_pages = pages_of_block(a.page_table_stride, n_blocks);
  const int n_candidates = pages_of_block(most_candidates, n_blocks);
  const int room = std::min(device.shared_bytes, kMultiprocessorBytes / blocks_each - kReservedBytes) -
                   kStaticBytes - table_bytes;
  // The area is also where warps hand over outputs, unless they have room of their own.
  const int least = a.group > kTileHeads ? 0 : handed_bytes(a.head_dim, n_warps);
  const int estimates = estimate_bytes(n_pages, a.group);
  const int wanted =
      std::max({least, estimates, 16 * n_pages + n_candidates * 3 / 2 * candidate_bytes(a.group)});
  const auto fixed = [&](int exact_warps) {
    return sparse_layout(a.group, a.head_dim, n_warps, exact_warps, by_mass(a.budget)).area;
  };
  if (fixed(1) + least > room) return {{}, -1};
  SparsePlan plan{};
  plan.cluster_blocks = n_blocks;
  plan.n_warps = n_warps;
  plan.exact_warps = 1;
  while (plan.exact_warps < kMostExactWarps && (plan.exact_warps + 1) * n_blocks <= 32 &&
         fixed(plan.exact_warps + 1) + wanted <= room) {
    ++plan.exact_warps;
  }
  plan.area_bytes = std::min(wanted, room - fixed(plan.exact_warps)) / 16 * 16;
  plan.shared_bytes = table_bytes + fixed(plan.exact_warps) + plan.area_bytes;
  plan.most_candidates = most_candidates;
  const bool spills = estimates > plan.area_bytes;
  plan.candidates_offset = spills ? aligned(static_cast<size_t>(n_pairs) *
                                            static_cast<size_t>(estimate_bytes(a.page_table_stride, a.group)))
                                  : 0;
  plan.workspace_bytes = plan.candidates_offset + static_cast<size_t>(n_pairs) *
                                                      static_cast<size_t>(most_candidates) *
                                                      static_cast<size_t>(spilled_candidate_bytes(a.group));
  const int at_a_time = blocks_each * device.clusters[n_blocks];
  const int rounds = (n_pairs + at_a_time - 1) / at_a_time;
  const double time = n_pages * kPageTime * (kMostSparseWarps / n_warps) * (spills ? 1.25 : 1.0) +
                      kStepsTime * (1 + 0.01 * n_blocks);
  return {plan, rounds * time};
}

}  // namespace

SparsePlan plan_sparse(const SparseAttention& a, int key_bits, int value_bits, const SparseDevice& device,
                       int cluster_blocks, int n_warps) {
  check_sizes(a, key_bits, value_bits);
  const int table_bytes = kPairRowBytes * pair_table_rows(std::max(key_bits, value_bits));
  Trial best = {{}, -1};
  for (int n = 1; n <= kMostClusterBlocks; ++n) {
    if (device.clusters[n] == 0) continue;
    for (const auto& [warps, blocks_each] : {std::pair{16, 1}, {8, 2}, {8, 1}}) {
      if ((cluster_blocks != 0 && n != cluster_blocks) || (n_warps != 0 && warps != n_warps)) continue;
      const Trial trial = try_plan(a, table_bytes, device, n, warps, blocks_each);
      if (trial.cost >= 0 && (best.cost < 0 || trial.cost < best.cost)) best = trial;
    }
  }
  if (best.cost < 0) {
    throw Error("the CUDA device has too little shared memory for sparse attention with " +
                std::to_string(a.group) + " query heads of " + std::to_string(a.head_dim));
  }
  return best.plan;
}

}  // namespace quire::cuda
