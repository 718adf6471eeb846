// The sparse kernel: its steps in their order, the exact rows, and the merge of a pair's heads.
#pragma once

#include "kernels/cuda/device/decode_attention.cuh"
#include "kernels/cuda/device/sparse_values.cuh"

namespace quire::cuda {

// The last exact_warps warps of every block: tiles of the tail from the first block on, those of the sinks
// from the last block on.
template <class Number, int kHeadDim>
__device__ void attend_exact_tiles(const SparseBlock& block, int n_tail, int n_sinks) {
  using Rows = ExactRows<Number, kHeadDim>;
  const SparseAttention& a = block.a;
  const int n_warps = block.plan.exact_warps;
  const int own = warp_index() - ((int)blockDim.x / 32 - n_warps);
  if (own < 0) return;
  const int step = block.n_blocks * n_warps;
  const int first = block.rank * n_warps + own;
  uint8_t* stages = block.exact_stages + own * (Rows::kKeyStageBytes + Rows::kValueStageBytes);
#pragma unroll 1
  for (int tile = 0; tile < block.n_head_tiles; ++tile) {
    RunningState<Rows> state = {{-CUDART_INF_F, -CUDART_INF_F}};
#pragma unroll 1
    for (int part = 0; part < 2; ++part) {
      const bool of_tail = part == 0;
      const int n_rows = of_tail ? n_tail : n_sinks;
      const int n_tiles = tiles_of(n_rows, Rows::kTileTokens);
      const int own_first = of_tail ? first : step - 1 - first;
      if (own_first >= n_tiles) continue;
      const DecodeAttention rows = {a.n_sequences,
                                    a.n_kv_heads,
                                    a.group,
                                    kHeadDim,
                                    a.queries,
                                    a.scale,
                                    a.exact.keys,
                                    a.exact.values,
                                    of_tail ? a.exact.page_table : a.exact.sink_pages,
                                    of_tail ? a.exact.page_table_stride : 1,
                                    nullptr,
                                    0,
                                    nullptr,
                                    nullptr,
                                    nullptr};
      const Segment segment = {block.sequence,
                               block.kv_head,
                               tile * kTileHeads,
                               min(a.group - tile * kTileHeads, kTileHeads),
                               n_rows,
                               0,
                               n_tiles,
                               block.pair};
      attend_tiles<Rows, 1>(rows, segment, stages, own_first, step, state);
    }
    store_state(state,
                block.exact_states + (own * block.n_head_tiles + tile) * StateLayout<kHeadDim>::kFloats);
  }
}

// Of one head, as this block's exact warps left it.
template <int kHeadDim>
__device__ const float* exact_state(const SparseBlock& block, int warp, int head) {
  return block.exact_states +
         (warp * block.n_head_tiles + head / kTileHeads) * StateLayout<kHeadDim>::kFloats;
}

template <int kHeadDim>
__device__ void sum_exact(const SparseBlock& block) {
  const int head = (int)threadIdx.x;
  if (head >= block.a.group) return;
  OctaveSum all;
  for (int warp = 0; warp < block.plan.exact_warps; ++warp) {
    const float* state = exact_state<kHeadDim>(block, warp, head);
    all.add(state[head % kTileHeads], state[StateLayout<kHeadDim>::kSums + head % kTileHeads]);
  }
  block.shared.exact_sums[head] = {all.top, all.sum};
}

// A lane's dims of a head: four neighbours in each 128.
template <int kHeadDim>
struct HeadDims {
  static constexpr int kFours = (kHeadDim + 127) / 128;
  float4 x[kFours] = {};

  static __device__ int dim(int i) { return 128 * i + 4 * lane_index(); }
  static __device__ bool has(int i) { return dim(i) < kHeadDim; }
  __device__ void add(float weight, const float* row) {
#pragma unroll
    for (int i = 0; i < kFours; ++i) {
      if (!has(i)) continue;
      const float4 y = *reinterpret_cast<const float4*>(row + dim(i));
      x[i].x += weight * y.x, x[i].y += weight * y.y, x[i].z += weight * y.z, x[i].w += weight * y.w;
    }
  }
  __device__ void put(float* row) const {
#pragma unroll
    for (int i = 0; i < kFours; ++i) {
      if (has(i)) *reinterpret_cast<float4*>(row + dim(i)) = x[i];
    }
  }
};

// Output and log-sum of one head by one warp: the outputs of all blocks, taken out of the frame, and the
// exact states of all blocks. x [2][head_dim].
template <int kHeadDim>
__device__ void finish_head(const SparseBlock& block, int head, float* x) {
  const SparseAttention& a = block.a;
  const int in_tile = head % kTileHeads;
  const int n_states = block.n_blocks * block.plan.exact_warps;  // at most 32
  const float* state = exact_state<kHeadDim>(block, lane_index() % block.plan.exact_warps, head);
  OctaveSum exact;
  if (lane_index() < n_states) {
    const float* other = of_block(state, lane_index() / block.plan.exact_warps);
    exact = {other[in_tile], other[StateLayout<kHeadDim>::kSums + in_tile]};
  }
  float coded = lane_index() < block.n_blocks ? of_block(block.shared.coded_sums, lane_index())[head] : 0.0f;
  HeadDims<kHeadDim> sums;
#pragma unroll 4
  for (int rank = 0; rank < block.n_blocks; ++rank)
    sums.add(1.0f, of_block(block.coded + head * kHeadDim, rank));
  sums.put(x);
  sums.put(x + kHeadDim);
  for (int lanes = 16; lanes > 0; lanes /= 2) coded += __shfl_xor_sync(kAllLanes, coded, lanes);
  const auto of_head = [&](const float* plane) {
    return plane == nullptr ? nullptr : plane + block.kv_head * kHeadDim;
  };
  const Frame frame = {kHeadDim, of_head(a.value_frame.mean), nullptr, of_head(a.value_frame.signs)};
  __syncwarp();
  rotate_row_back(frame, x + lane_index() / kRowLanes * kHeadDim);  // both halves of the warp the same
  OctaveSum all = exact;
#pragma unroll 1
  for (int lanes = 1; lanes < 32; lanes *= 2) all.add_lane(lanes);
  all.top = __shfl_sync(kAllLanes, all.top, 0);
  all.sum = __shfl_sync(kAllLanes, all.sum, 0);
  const float reference = coded > 0.0f ? block.shared.references[head] : -CUDART_INF_F;
  all.add(reference, coded);
  const float scale = all.sum > 0.0f ? 1.0f / all.sum : 0.0f;
  const float coded_scale = coded > 0.0f ? power_of_two(reference - all.top) * scale : 0.0f;
  HeadDims<kHeadDim> out;
  out.add(coded_scale, x);
  if (frame.mean != nullptr) out.add(coded_scale * coded, frame.mean);
  const float weight = exact.sum > 0.0f ? power_of_two(exact.top - all.top) * scale : 0.0f;
#pragma unroll 1
  for (uint32_t left = __ballot_sync(kAllLanes, exact.sum > 0.0f); left != 0; left &= left - 1) {
    const int i = __ffs((int)left) - 1;
    const float* from =
        of_block(exact_state<kHeadDim>(block, i % block.plan.exact_warps, head), i / block.plan.exact_warps);
    out.add(__shfl_sync(kAllLanes, weight, i), from + StateLayout<kHeadDim>::kOutputs + in_tile * kHeadDim);
  }
  out.put(a.out + (int64_t)(block.first_head() + head) * kHeadDim);
  if (lane_index() == 0) a.log_sums[block.first_head() + head] = all.octaves() * 0.6931471805599453f;
}

// Heads are shared out among the blocks; the area is free.
template <int kHeadDim>
__device__ void finish_heads(const SparseBlock& block) {
  const int n_warps = (int)blockDim.x / 32;
#pragma unroll 1
  for (int head = block.rank + block.n_blocks * warp_index(); head < block.a.group;
       head += block.n_blocks * n_warps)
    finish_head<kHeadDim>(block, head, block.sums + 2 * warp_index() * kHeadDim);
  if (block.rank == 0 && warp_index() == n_warps - 1) {
    const bool has = lane_index() < block.n_blocks;
    const int candidates = has ? *of_block(&block.shared.n_candidates, lane_index()) : 0;
    const int kept = has ? *of_block(&block.shared.n_kept, lane_index()) : 0;
    block.a.n_read[2 * block.pair] = __reduce_add_sync(kAllLanes, candidates);
    block.a.n_read[2 * block.pair + 1] = __reduce_add_sync(kAllLanes, kept);
  }
}

// Words of the pages to memory, where somebody asked for them.
__device__ inline void store_words(const SparseBlock& block, const PageMarks* marks) {
  const int64_t first = (int64_t)block.pair * block.a.page_table_stride + block.first_page;
#pragma unroll 1
  for (int page = (int)threadIdx.x; page < block.n_pages; page += (int)blockDim.x) {
    if (block.a.candidates != nullptr) block.a.candidates[first + page] = marks[page].above;
    if (block.a.kept != nullptr) block.a.kept[first + page] = 0;
  }
}

__device__ inline void store_kept(const SparseBlock& block, const CandidateArrays& arrays, int n_kept) {
  if (block.a.kept == nullptr) return;
  const int64_t first = (int64_t)block.pair * block.a.page_table_stride + block.first_page;
  for (int i = (int)threadIdx.x; i < n_kept; i += (int)blockDim.x) {
    const uint32_t row = arrays.rows[arrays.kept[i]];
    atomicOr(reinterpret_cast<unsigned long long*>(block.a.kept + first + row / 64), 1ull << row % 64);
  }
}

// The queries in all forms, tables, and counters at zero.
template <int kHeadDim, int kKeyBits, int kValueBits>
__device__ void prepare(const SparseParams& params, const SparseBlock& block) {
  const int n_warps = (int)blockDim.x / 32;
  const int n_framing = (block.a.group + 1) / 2;  // warps; at most 8
  frame_queries<kHeadDim>(block);
  if (n_framing == n_warps || warp_index() >= n_framing) {
    const int n_free = n_framing == n_warps ? n_warps : n_warps - n_framing;
    const int first = (warp_index() + n_free - n_framing) % n_free;
    make_pair_table<kKeyBits>(shared_memory(), 0, params.tables.keys, first, n_free);
    make_pair_table<kValueBits>(shared_memory(), 128, params.tables.values, first, n_free);
  }
  for (int level = (int)threadIdx.x; level < kLevels; level += (int)blockDim.x)
    block.shared.counts[level] = block.shared.score_counts[level] = 0;
  __syncthreads();
  make_query_bits<kHeadDim>(block);
  make_query_factors<kHeadDim>(block);
  __syncthreads();
}

// Rows of the block that become candidates, in its list; blocks before it have n_before.
struct Candidates {
  CandidateArrays arrays;
  int n;
  int n_before;
};

// After the estimates, of which block sums are known: n_wanted of the pair's rows, or all of them.
__device__ inline Candidates propose(const SparseBlock& block, const Estimates& estimates, int n_wanted,
                                     bool everything) {
  PageMarks* marks = estimates.marks;
  // Sinks are no candidates; they are the first rows of the first page, whichever block has it.
  ClusterLimit limit = {0, 0, block.first_page > 0 ? 64 * block.first_page - block.a.n_sinks : 0};
  if (everything) {
    mark_all(block, marks);
  } else {
    cluster_wait();
    find_offsets(block);
    __syncthreads();
    level_rows(block, estimates);
    cluster_wait();
    limit = find_limit(block.shared, block.shared.counts, n_wanted, block.n_blocks, block.rank);
    compare_levels(block, estimates, limit.level);
  }
  __syncthreads();
  const int n = settle_marks(block, limit.n_ties, marks);
  const CandidateArrays arrays = arrays_for(block, n, limit.n_before);
  store_words(block, marks);
  list_candidates(block, marks, arrays);
  if (threadIdx.x == 0) block.shared.n_candidates = n;
  __syncthreads();
  return {arrays, n, limit.n_before};
}

// After the scores, of which sums are known.
__device__ inline void choose(const SparseBlock& block, const Candidates& candidates,
                              const SparseCounts& counts) {
  const CandidateArrays& arrays = candidates.arrays;
  if (by_mass(block.a.budget)) {
    sum_masses(block, arrays, candidates.n, block.masses);
    cluster_wait();
    find_least_levels(block, block.masses, block.a.budget.mass);
    __syncthreads();
    keep_by_mass(block, arrays, candidates.n);
  } else if (counts.n_rows < counts.n_candidates) {
    level_candidates(block, arrays, candidates.n);
    cluster_wait();
    keep_by_rank(
        block, arrays, candidates.n,
        find_limit(block.shared, block.shared.score_counts, counts.n_rows, block.n_blocks, block.rank));
  } else {
    list_kept(block, arrays, candidates.n, [](int) { return true; });
  }
}

// Source: where the codes of candidates are read, PageSource or RecordSource.
template <int kHeadDim, int kKeyBits, int kValueBits, class Source>
__global__ void __launch_bounds__(32 * kMostSparseWarps, 1)
    sparse_attention(const __grid_constant__ typename Source::Params params) {
  __shared__ SparseShared shared;
  constexpr int kTableBytes = kPairRowBytes * pair_table_rows(kKeyBits > kValueBits ? kKeyBits : kValueBits);
  const SparseBlock block = sparse_block<kHeadDim>(params, shared, kTableBytes);
  const SparseAttention& a = params.a;
  const int n_sealed = a.n_tokens[block.sequence] / 64 * 64;
  const int n_tail = a.exact.n_tokens[block.sequence];
  const int n_sinks = n_sealed > 0 ? a.n_sinks : 0;
  const SparseCounts counts = sparse_counts(a.budget, n_tail + n_sinks, n_sealed - n_sinks);
  const bool everything = counts.n_candidates >= n_sealed - n_sinks;
  __syncthreads();  // numbers of pages
  if (!everything) fetch_first_pages<kHeadDim>(block);
  prepare<kHeadDim, kKeyBits, kValueBits>(params, block);
  if (a.exact.format == Format::kF16) {
    attend_exact_tiles<__half, kHeadDim>(block, n_tail, n_sinks);
  } else {
    attend_exact_tiles<__nv_bfloat16, kHeadDim>(block, n_tail, n_sinks);
  }
  const Estimates estimates = estimates_of(block);
#pragma unroll 1
  for (int four = 0; !everything && four < block.n_head_fours; ++four)
    estimate_pages<kHeadDim>(block, estimates, four);
  __syncthreads();
  if (!everything) sum_warps(shared, a.group, shared.estimate_sums);
  sum_exact<kHeadDim>(block);
  const Candidates candidates = propose(block, estimates, counts.n_candidates, everything);
  const Source source(params, block, candidates.arrays.rows, candidates.n, candidates.n_before);
#pragma unroll 1
  for (int tile = 0; tile < block.n_head_tiles; ++tile)
    score_candidates<kHeadDim, kKeyBits>(source, block, candidates.arrays, candidates.n, tile);
  __syncthreads();
  sum_warps(shared, a.group, shared.score_sums);
  cluster_wait();
  find_log_sums(block);
  __syncthreads();
  choose(block, candidates, counts);
  store_kept(block, candidates.arrays, shared.n_kept);
#pragma unroll 1
  for (int tile = 0; tile < block.n_head_tiles; ++tile)
    attend_kept<kHeadDim, kValueBits>(source, block, candidates.arrays, shared.n_kept, tile);
  cluster_wait();
  finish_heads<kHeadDim>(block);
  cluster_wait();  // nobody leaves while others read its memory
}

}  // namespace quire::cuda
