#include <algorithm>
#include <string>

#include "base/error.h"
#include "kernels/cuda/signvq_attention.h"

namespace quire::cuda {

namespace {

// Of one kernel on a multiprocessor.
constexpr int kResidentBlocks = 2;
constexpr int kWarps = 8;
constexpr int kMostBlocks = 64;
constexpr int kStepTokens = 512;  // that a warp scans at a time
constexpr int kTileRows = 16;
constexpr int kAloneRows = 512;

size_t aligned(size_t n_bytes) { return (n_bytes + 255) / 256 * 256; }

int quotient_up(int64_t x, int64_t y) { return static_cast<int>((x + y - 1) / y); }

void check_sizes(const SignVqAttention& a) {
  if (!has_kernels(a.head_dim)) {
    throw Error("no CUDA kernel for heads of " + std::to_string(a.head_dim) +
                " values (64, 80, 96, 128, 256)");
  }
  if (a.n_kept_rows < 0 || a.n_kept_rows > kMostKeptRows) {
    throw Error("signvq attention on the CUDA device keeps 0 to " + std::to_string(kMostKeptRows) +
                " rows, not " + std::to_string(a.n_kept_rows));
  }
  if (a.budget.mass > 0) throw Error("signvq attention on the CUDA device has no budget by mass");
}

// As many as fill the device, and no more than there is work for.
int share_blocks(int n_places, int n_parts, int most_work) {
  return std::clamp(n_places / n_parts, 1, std::clamp(most_work, 1, kMostBlocks));
}

}  // namespace

SignVqPlan plan_signvq(const SignVqAttention& a, int n_multiprocessors) {
  check_sizes(a);
  const int n_pairs = a.n_sequences * a.n_kv_heads;
  const int n_tiles = n_pairs * quotient_up(a.group, kTileHeads);
  const int n_places = kResidentBlocks * n_multiprocessors;
  const int most_tokens = 64 * a.page_table_stride;
  SignVqPlan plan{};
  plan.most_rows = sparse_counts(a.budget, 0, most_tokens).n_rows;
  const int n_rows = std::max(plan.most_rows, kMostKeptRows);
  plan.scan_blocks = share_blocks(n_places, n_pairs, quotient_up(most_tokens, kStepTokens * kWarps));
  // Blocks that have to be merged cost as much as two tiles more for every warp.
  const int most_blocks = n_rows <= kAloneRows ? 1 : quotient_up(n_rows, kTileRows * kWarps);
  plan.attend_blocks = share_blocks(n_places, n_tiles, most_blocks);
  // Where blocks are few, attention's would have to list the rows of most of a pair to find their own.
  plan.block_parts = plan.scan_blocks < kWarps ? kWarps : 1;
  const auto pairs = static_cast<size_t>(n_pairs);
  const auto numbers = static_cast<size_t>(a.head_dim > 128 ? 256 : 128);
  plan.headers_offset = aligned(static_cast<size_t>(n_tiles) * sizeof(int32_t));
  plan.kept_offset = plan.headers_offset + aligned(pairs * 2 * sizeof(int32_t));
  plan.counts_offset = plan.kept_offset + aligned(pairs * kMostKeptRows);
  plan.bytes_offset = plan.counts_offset + pairs * static_cast<size_t>(plan.scan_blocks * plan.block_parts) *
                                               256 * sizeof(int32_t);
  plan.states_offset = plan.bytes_offset + aligned(pairs * static_cast<size_t>(most_tokens));
  plan.workspace_bytes = plan.states_offset + static_cast<size_t>(n_tiles * plan.attend_blocks) * kTileHeads *
                                                  (numbers + 2) * sizeof(float);
  return plan;
}

bool has_offloaded_signvq(int head_dim, int group) {
  return has_kernels(head_dim) && head_dim <= 128 && group <= kTileHeads;
}

}  // namespace quire::cuda
