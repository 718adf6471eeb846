// Which rows a signvq step reads: the threshold of a pair's histogram, and the rows above it in their order.
#pragma once

#include "kernels/cuda/device/signvq_step.cuh"

namespace quire::cuda {

// A row is read if its byte is at least `sure`, or at least `least` and it is not among the first n_skipped
// rows of such bytes.
struct RowChoice {
  int least;
  int sure;  // 256: no byte is
  int n_skipped;
  int n_rows;  // in all
};

struct ChoiceShared {
  int above[kSignVqBins + 1];  // rows of this byte or above
  int masses[kSignVqBins];     // rows that count for the mass
  alignas(16) int quarters[4][kSignVqBins];
  int warp_sums[kSignVqWarps];
  float warp_masses[kSignVqWarps];
  int top;
  int level;
  // Of the parts before.
  int sure[kMostParts + 1];
  int equal[kMostParts + 1];
  int warp_sure[kSignVqWarps];
  int warp_equal[kSignVqWarps];
};

__device__ __forceinline__ int estimate_of(int byte, const SignVqHeader& header) {
  return (256 * (byte - 1 + header.least) * header.factor + 16384) >> 15;
}

// Levels rise with bytes; byte 0 has none.
__device__ __forceinline__ int level_of(int byte, const SignVqHeader& header, int offset) {
  const int below = max(min(estimate_of(byte, header) - offset, 32767), -32768);
  return byte == 0 ? -1 : max(min((below >> 4) + 255, 255), 0);
}

// log2 of the mass of all rows, in estimates. The block waits.
__device__ inline int mass_offset(const SignVqHeader& header, ChoiceShared& shared) {
  const int byte = (int)threadIdx.x;
  const int n = shared.masses[byte];
  if (byte == 0) shared.top = 0;
  __syncthreads();
  const int top = __reduce_max_sync(kAllLanes, n > 0 ? byte : 0);
  if (lane_index() == 0) atomicMax(&shared.top, top);
  __syncthreads();
  const auto below = (float)(estimate_of(byte, header) - estimate_of(shared.top, header));
  float mass = n > 0 ? (float)n * exp2f(below / 128.0f) : 0.0f;
  for (int half = 16; half > 0; half /= 2) mass += __shfl_xor_sync(kAllLanes, mass, half);
  if (lane_index() == 0) shared.warp_masses[warp_index()] = mass;
  __syncthreads();
  float sum = 0.0f;
  for (int i = 0; i < kSignVqWarps; ++i) sum += shared.warp_masses[i];
  const float offset = (float)estimate_of(shared.top, header) + 128.0f * log2f(sum);
  return (int)fminf(fmaxf(rintf(offset), -32768.0f), 32767.0f);
}

// above[byte] for a thread's byte of which there are n.
__device__ inline void sum_from_above(int n, ChoiceShared& shared) {
  int sum = n;
  for (int step = 1; step < 32; step *= 2) {
    const int other = __shfl_down_sync(kAllLanes, sum, step);
    if (lane_index() + step < 32) sum += other;
  }
  if (lane_index() == 0) shared.warp_sums[warp_index()] = sum;
  __syncthreads();
  for (int warp = warp_index() + 1; warp < kSignVqWarps; ++warp) sum += shared.warp_sums[warp];
  shared.above[threadIdx.x] = sum;
  if (threadIdx.x == 0) shared.above[kSignVqBins] = 0;
  __syncthreads();
}

// Counts of four bytes, 4 (threadIdx.x % 64) .., of every fourth part from threadIdx.x / 64 on, of which many
// are asked for before one is used. f(part, counts) with all lanes; behind the last part the counts are
// zeros.
template <class F>
__device__ __forceinline__ void visit_counts(const SignVqParams& p, int pair, F&& f) {
  constexpr int kTogether = 9;  // 33 parts of a batch of one on an H200
  const auto* from = reinterpret_cast<const int4*>(p.counts(pair)) + threadIdx.x % 64;
  for (int first = (int)threadIdx.x / 64; first < p.n_parts(); first += 4 * kTogether) {
    int4 counts[kTogether];
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
      const int part = first + 4 * i;
      counts[i] = part < p.n_parts() ? __ldcg(from + part * (kSignVqBins / 4)) : int4{0, 0, 0, 0};
    }
#pragma unroll
    for (int i = 0; i < kTogether; ++i) f(first + 4 * i, counts[i]);
  }
}

// Of a thread's byte, in all parts. The block waits.
__device__ inline int count_byte(const SignVqParams& p, int pair, ChoiceShared& shared) {
  int4 sums = {0, 0, 0, 0};
  visit_counts(p, pair, [&](int, const int4& n) {
    sums.x += n.x;
    sums.y += n.y;
    sums.z += n.z;
    sums.w += n.w;
  });
  *reinterpret_cast<int4*>(&shared.quarters[threadIdx.x / 64][threadIdx.x % 64 * 4]) = sums;
  if (threadIdx.x <= kMostParts) shared.sure[threadIdx.x] = shared.equal[threadIdx.x] = 0;
  __syncthreads();
  int n = 0;
  for (int i = 0; i < 4; ++i) n += shared.quarters[i][threadIdx.x];
  return n;
}

// A thread a byte. n_wanted of n_coded rows that may be read.
__device__ inline RowChoice choose_rows(const SignVqParams& p, int pair, int n_wanted, int n_coded,
                                        ChoiceShared& shared) {
  const int byte = (int)threadIdx.x;
  const int n = count_byte(p, pair, shared);
  const SignVqHeader header = p.headers()[pair];
  shared.masses[byte] = n;
  __syncthreads();
  if (byte < p.a.n_kept_rows) atomicAdd(&shared.masses[p.kept_bytes(pair)[byte]], 1);
  sum_from_above(n, shared);
  if (n_wanted >= n_coded) return {1, 1, 0, n_coded};
  const int level = level_of(byte, header, mass_offset(header, shared));
  const int lowest = __syncthreads_count(level < 1);
  const int n_rows = min(n_wanted, shared.above[lowest]);
  if (n_rows <= 0) return {256, 256, 0, 0};
  if (shared.above[byte] >= n_rows && shared.above[byte + 1] < n_rows) shared.level = level;
  __syncthreads();
  const int least = __syncthreads_count(level < shared.level);
  const int sure = __syncthreads_count(level <= shared.level);
  const int n_equal = shared.above[least] - shared.above[sure];
  return {least, sure, n_equal - (n_rows - shared.above[sure]), n_rows};
}

// Counts of the pair's parts become sums over those before. The block waits.
__device__ inline void sum_parts(const SignVqParams& p, int pair, const RowChoice& choice,
                                 ChoiceShared& shared) {
  const int n_parts = p.n_parts();
  const int byte = (int)threadIdx.x % 64 * 4;
  visit_counts(p, pair, [&](int part, const int4& n) {
    const int counts[4] = {n.x, n.y, n.z, n.w};
    int sure = 0;
    int equal = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      sure += byte + i >= choice.sure ? counts[i] : 0;
      equal += byte + i >= choice.least && byte + i < choice.sure ? counts[i] : 0;
    }
    sure = __reduce_add_sync(kAllLanes, sure);
    equal = __reduce_add_sync(kAllLanes, equal);
    if (lane_index() == 0 && part < n_parts) {  // two warps have a part
      atomicAdd(&shared.sure[part + 1], sure);
      atomicAdd(&shared.equal[part + 1], equal);
    }
  });
  __syncthreads();
  if (warp_index() == 0) {
    int sure = 0;
    int equal = 0;
    for (int first = 0; first < n_parts; first += 32) {
      const int part = first + lane_index();
      int own_sure = part < n_parts ? shared.sure[part + 1] : 0;
      int own_equal = part < n_parts ? shared.equal[part + 1] : 0;
      for (int lanes = 1; lanes < 32; lanes *= 2) {
        const int other_sure = __shfl_up_sync(kAllLanes, own_sure, lanes);
        const int other_equal = __shfl_up_sync(kAllLanes, own_equal, lanes);
        own_sure += lane_index() >= lanes ? other_sure : 0;
        own_equal += lane_index() >= lanes ? other_equal : 0;
      }
      own_sure += sure;
      own_equal += equal;
      if (part < n_parts) {
        shared.sure[part + 1] = own_sure;
        shared.equal[part + 1] = own_equal;
      }
      sure = __shfl_sync(kAllLanes, own_sure, 31);
      equal = __shfl_sync(kAllLanes, own_equal, 31);
    }
    if (lane_index() == 0) shared.sure[0] = shared.equal[0] = 0;
  }
  __syncthreads();
}

// How many rows are read among the `sure` sure ones and the first `equal` others.
__device__ __forceinline__ int rank_of(int sure, int equal, const RowChoice& choice) {
  return sure + max(equal - choice.n_skipped, 0);
}

// Ranks first .. last - 1 of the rows that are read.
struct RankRange {
  int first;
  int last;
};

// Of a block of n_blocks that share the rows. An edge lies where a part begins if that is near enough to
// where it would make all blocks equal, so that parts are listed by one block.
__device__ inline RankRange share_ranks(const SignVqParams& p, const RowChoice& choice, int block,
                                        int n_blocks, const ChoiceShared& shared) {
  const auto edge = [&](int at) {
    const int wanted = (int)((int64_t)choice.n_rows * at / n_blocks);
    if (at == 0 || at == n_blocks) return wanted;
    uint32_t best = ~0u;
    for (int part = lane_index(); part <= p.n_parts(); part += 32) {
      const int rank = rank_of(shared.sure[part], shared.equal[part], choice);
      best = min(best, (uint32_t)abs(rank - wanted) << 7 | (uint32_t)part);
    }
    best = __reduce_min_sync(kAllLanes, best);
    const int part = (int)(best & 127);
    const bool is_near = (int)(best >> 7) <= choice.n_rows / n_blocks / 16;
    return is_near ? rank_of(shared.sure[part], shared.equal[part], choice) : wanted;
  };
  return {edge(block), edge(block + 1)};
}

// Sixteen rows of a lane: which are read for sure, which have a byte of the threshold's level.
struct LaneRows {
  uint32_t sure;
  uint32_t equal;
};

// Which of sixteen bytes are at least `least`. The upper bit of byte - least in the lower seven bits tells,
// but for the upper bits themselves: both of the two where `least` has one, either where it has none.
struct ByteLimit {
  uint32_t lower;   // lower seven bits, four times
  uint32_t either;  // all ones where the limit's upper bit is 0

  __device__ __forceinline__ explicit ByteLimit(int least)
      : lower((uint32_t)(least & 127) * 0x01010101u), either(least < 128 ? ~0u : 0u) {}
  __device__ __forceinline__ uint32_t bits(const uint4& bytes) const {
    return four(bytes.x) | four(bytes.y) << 4 | four(bytes.z) << 8 | four(bytes.w) << 12;
  }
  __device__ __forceinline__ uint32_t four(uint32_t bytes) const {
    const uint32_t below = (bytes | 0x80808080u) - lower;
    const uint32_t reached = (below & bytes) | (either & (below | bytes));
    return (reached & 0x80808080u) * 0x00204081u >> 28;
  }
};

__device__ __forceinline__ LaneRows lane_rows(const uint4& bytes, const RowChoice& choice) {
  const uint32_t sure = choice.sure > 255 ? 0 : ByteLimit(choice.sure).bits(bytes);
  return {sure, ByteLimit(choice.least).bits(bytes) & ~sure};
}
// Of a lane's rows from `row` on, of which those from `last` on are none.
__device__ __forceinline__ uint4 lane_bytes(const uint8_t* bytes, int row, int last) {
  return row < last ? __ldcg(reinterpret_cast<const uint4*>(bytes + row)) : uint4{0, 0, 0, 0};
}

// Where a warp begins among the steps of a part, and its sums there.
struct WarpSteps {
  StepRange steps;
  int sure;
  int equal;
};

// The block waits.
__device__ inline WarpSteps share_steps(const uint8_t* bytes, int n_pages, int part, int n_parts,
                                        const RowChoice& choice, ChoiceShared& shared) {
  const StepRange all = steps_of(n_pages, part, n_parts);
  const int n = all.last - all.first;
  WarpSteps own = {
      {all.first + n * warp_index() / kSignVqWarps, all.first + n * (warp_index() + 1) / kSignVqWarps},
      shared.sure[part],
      shared.equal[part]};
  int sure = 0;
  int equal = 0;
#pragma unroll 4
  for (int step = own.steps.first; step < own.steps.last; ++step) {
    const LaneRows rows =
        lane_rows(lane_bytes(bytes, step * kStepRows + 16 * lane_index(), 64 * n_pages), choice);
    sure += __popc(rows.sure);
    equal += __popc(rows.equal);
  }
  sure = __reduce_add_sync(kAllLanes, sure);
  equal = __reduce_add_sync(kAllLanes, equal);
  __syncthreads();
  if (lane_index() == 0) {
    shared.warp_sure[warp_index()] = sure;
    shared.warp_equal[warp_index()] = equal;
  }
  __syncthreads();
  for (int warp = 0; warp < warp_index(); ++warp) {
    own.sure += shared.warp_sure[warp];
    own.equal += shared.warp_equal[warp];
  }
  return own;
}

// What is listed of a row: where it begins behind those of page 0, in units of kListedBytes; or its number in
// the text.
struct RowPlaces {
  const int32_t* table;  // nullptr: pages as the text has them
  uint32_t page_units;
  uint32_t row_units;

  __device__ __forceinline__ int page_of(int row, int n_pages) const {
    return table != nullptr ? table[min(row / 64, n_pages - 1)] : row / 64;
  }
};
__device__ __forceinline__ RowPlaces places_in_pages(const SignVqParams& p, int pair) {
  return {p.a.page_table + (int64_t)(pair / p.a.n_kv_heads) * p.a.page_table_stride,
          (uint32_t)(p.a.rows.page_stride / kListedBytes),
          (uint32_t)(signvq_row_bytes(p.a.head_dim) / kListedBytes)};
}
__device__ __forceinline__ RowPlaces places_in_text() { return {nullptr, 64, 1}; }

// Of the rows whose ranks begin at `rank`, those below n.
__device__ inline void mark_rows(uint64_t* word, uint32_t chosen, int first, int rank, int n) {
  for (uint32_t left = chosen; left != 0; left &= left - 1, ++rank) {
    const int at = first + __ffs((int)left) - 1;
    if (rank >= 0 && rank < n) atomicOr((unsigned long long*)word, 1ull << at);
  }
}

// Lists those of the ranks that lie in the warp's steps. Bytes are asked for a step ahead.
__device__ inline void list_steps(const uint8_t* bytes, const RowPlaces& places, int n_pages, WarpSteps own,
                                  const RowChoice& choice, const RankRange& ranks, uint32_t* list,
                                  uint64_t* marks) {
  int row = own.steps.first * kStepRows + 16 * lane_index();
  if (own.steps.first >= own.steps.last) return;
  uint4 ahead = lane_bytes(bytes, row, 64 * n_pages);
  int page = places.page_of(row, n_pages);
  const int n_listed = ranks.last - ranks.first;
  for (int step = own.steps.first; step < own.steps.last; ++step, row += kStepRows) {
    if (rank_of(own.sure, own.equal, choice) >= ranks.last) return;
    LaneRows rows = lane_rows(ahead, choice);
    const uint32_t first_row = (uint32_t)page * places.page_units + (uint32_t)(row % 64) * places.row_units;
    if (step + 1 < own.steps.last) {
      ahead = lane_bytes(bytes, row + kStepRows, 64 * n_pages);
      page = places.page_of(row + kStepRows, n_pages);
    }
    const int counts = __popc(rows.sure) << 16 | __popc(rows.equal);
    int before = counts;  // both sums are at most 512
    for (int lanes = 1; lanes < 32; lanes *= 2) {
      const int other = __shfl_up_sync(kAllLanes, before, lanes);
      if (lane_index() >= lanes) before += other;
    }
    const int all = __shfl_sync(kAllLanes, before, 31);
    before -= counts;
    const int equal = own.equal + (before & 0xffff);
    int rank = rank_of(own.sure + (before >> 16), equal, choice) - ranks.first;
    for (int skipped = choice.n_skipped - equal; skipped > 0 && rows.equal != 0; --skipped) {
      rows.equal &= rows.equal - 1;
    }
    const uint32_t chosen = rows.sure | rows.equal;
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      if ((chosen >> i & 1) != 0) {
        if ((uint32_t)rank < (uint32_t)n_listed) list[rank] = first_row + (uint32_t)i * places.row_units;
        ++rank;
      }
    }
    if (marks != nullptr) mark_rows(marks + row / 64, chosen, row % 64, rank - __popc(chosen), n_listed);
    own.sure += all >> 16;
    own.equal += all & 0xffff;
  }
}

// The list's last tile is filled with the first row. All threads, which have waited for the list; the block
// waits.
__device__ inline void fill_last_tile(uint32_t* list, int n) {
  const uint32_t entry = list[0];
  if (n + (int)threadIdx.x < (n + 15) / 16 * 16) list[n + threadIdx.x] = entry;
  __syncthreads();
}

// The rows of a range of ranks, at most as many as the list holds. The block waits.
__device__ inline void list_rows(const SignVqParams& p, int pair, int n_pages, const RowChoice& choice,
                                 const RankRange& ranks, const RowPlaces& places, uint32_t* list,
                                 uint64_t* marks, ChoiceShared& shared) {
  const uint8_t* bytes = p.bytes(pair);
  const int n_parts = p.n_parts();
  const bool is_apart = p.plan.block_parts > 1;
  const int warp = __shfl_sync(kAllLanes, warp_index(), 0);  // so that the compiler knows it is the warp's
  int n_taken = 0;
  for (int first = 0; first < n_parts; first += 32) {
    const int own_part = min(first + lane_index(), n_parts - 1);
    const int begin = rank_of(shared.sure[own_part], shared.equal[own_part], choice);
    const int end = rank_of(shared.sure[own_part + 1], shared.equal[own_part + 1], choice);
    const bool has_some = max(begin, ranks.first) < min(end, ranks.last) && first + lane_index() < n_parts;
    for (uint32_t left = __ballot_sync(kAllLanes, has_some); left != 0; left &= left - 1) {
      const int part = first + __ffs((int)left) - 1;
      if (is_apart && n_taken++ % kSignVqWarps != warp) continue;
      const WarpSteps own =
          is_apart ? WarpSteps{steps_of(n_pages, part, n_parts), shared.sure[part], shared.equal[part]}
                   : share_steps(bytes, n_pages, part, n_parts, choice, shared);
      list_steps(bytes, places, n_pages, own, choice, ranks, list, marks);
    }
  }
  __syncthreads();
}

}  // namespace quire::cuda
