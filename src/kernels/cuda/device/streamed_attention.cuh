// Decode attention over pages as decode_attention.cuh does it, for rows whose bytes alone take the time.
//
// A block stays on its multiprocessor and has a part of the row of all boxes (split.h); a box is the keys and
// values of a page (half of one, where rows are long). One warp has boxes copied ahead into a ring of stages,
// over the ends of heads, so that copies never run dry; most warps attend, a tile of 16 tokens of a box each.
// The copying warp also tells what the boxes belong to (Task); where those of one head end, the others join
// their states and go on.
//
// A part shares at most its first and its last head with other blocks. Nobody waits for how it stands with
// the first: a warp of its own sees to it (close_first_task), as every question to memory takes as long as
// all copies under way. Who finds all states of a head written merges them. Which tiles a state has is a
// matter of lengths alone, so results are the same bits at every launch.
#pragma once

#include "kernels/cuda/device/barrier.cuh"
#include "kernels/cuda/device/decode_attention.cuh"
#include "kernels/cuda/device/early_start.cuh"
#include "kernels/cuda/device/streamed_rows.cuh"

namespace quire::cuda {

template <class Rows>
struct StreamShape {
  using Box = typename Rows::Box;
  static constexpr int kWarps = Rows::kHeadDim > 128 ? 4 : 8;  // that attend
  static constexpr int kThreads = 32 * (kWarps + 2);
  static constexpr int kBoxWarps = Box::kTokens / Rows::kTileTokens;  // that share a box
  static constexpr int kGroups = kWarps / kBoxWarps;                  // that take boxes in turn
  static constexpr int kStageBytes = 2 * Box::kBytes;
  static constexpr int kStateBytes = kWarps * StateLayout<Rows::kHeadDim>::kFloats * 4;
  // In the ring: as many as fit. A stage is always of the same group, or else a group could take the end of a
  // phase for that of the one after the next, as copies need not arrive in order.
  static constexpr int kFitting = (208 * 1024 - kStateBytes) / kStageBytes;
  static constexpr int kStages = (kFitting > 16 ? 16 : kFitting) / kGroups * kGroups;
  static constexpr int kTasks = kStages + 2;
  static constexpr int kBytes = kStages * kStageBytes + kStateBytes;
  static constexpr int kMostMultiprocessors = 172;
  static constexpr int kMostStates = kMostMultiprocessors + 1;  // of a head
  // All states of a head are weighed where the warps' states were.
  static_assert(kStateBytes >= kMostStates * kTileHeads * 4);
};

template <class Rows>
struct StreamParams {
  AttentionParams<Rows> attention;
  CUtensorMap keys;  // boxes a line wide
  CUtensorMap values;
};

// The boxes of one head of one sequence in the block's part, and where their state goes.
struct Task {
  Segment segment;  // of boxes
  int first_block;  // that has boxes of the head
  int n_states;     // of the head
  bool is_last;     // of the part

  __device__ int n_boxes() const { return segment.end - segment.begin; }  // 0: no more tasks
};

template <class Rows>
struct StreamShared {
  using Shape = StreamShape<Rows>;
  uint64_t filled[Shape::kStages];
  uint64_t freed[Shape::kStages];
  uint64_t told[Shape::kTasks];
  uint64_t first_told;
  uint64_t first_state_written;
  Task tasks[Shape::kTasks];
  Task first_task;
  MergedSums merge;
  float weights[Shape::kWarps * kTileHeads];
  MergedSums first_merge;
  float first_weights[Shape::kMostStates * kTileHeads];
  int boxes_before[kMaxSequences + 1];  // of a head, in the sequences before
};

// The copying warp.
template <class Rows>
struct Feeder {
  using Shape = StreamShape<Rows>;
  static constexpr int kBoxTokens = Rows::Box::kTokens;
  static constexpr int kBoxesPerPage = 64 / kBoxTokens;

  const StreamParams<Rows>& stream;
  const AttentionParams<Rows>& params;
  StreamShared<Rows>& shared;
  int heads = 0;  // of a sequence that are attended apart
  EqualParts parts{};
  int at = 0;  // box of the row that the next task begins at
  int end = 0;
  int sequence = 0;      // of the last task
  int n_boxes = 0;       // asked for so far
  int n_tasks = 0;       // told so far
  int pages = 0;         // numbers of 32 pages of the next boxes, one a lane,
  int pages_behind = 0;  // and of the 32 behind them

  __device__ void take_part();
  __device__ Task next_task();
  __device__ const int32_t* table_of(const Task& task) const;
  __device__ void load_pages(const Task& task);
  __device__ void tell(const Task& task);
  __device__ void copy_box_pair(int head, int page, int row);
  __device__ Task feed(const Task& task);
  __device__ void run();
};

template <class Rows>
__device__ void Feeder<Rows>::take_part() {
  const DecodeAttention& a = params.a;
  sum_tiles(a, kBoxTokens, shared.boxes_before);
  __syncwarp();
  heads = a.n_kv_heads * params.head_tiles;
  const int n_all = shared.boxes_before[a.n_sequences] * heads;
  parts = equal_parts(n_all, (int)gridDim.x, Shape::kGroups);
  at = min((int)blockIdx.x * parts.length, n_all);
  end = min(at + parts.length, n_all);
}

// Without boxes: there is none.
template <class Rows>
__device__ Task Feeder<Rows>::next_task() {
  if (at >= end) return {};
  const DecodeAttention& a = params.a;
  for (;;) {  // the sequence of the box: not before that of the last task
    const int mine = min(sequence + lane_index(), a.n_sequences - 1) + 1;
    const unsigned ends_behind = __ballot_sync(kAllLanes, at < shared.boxes_before[mine] * heads);
    sequence += ends_behind != 0 ? __ffs((int)ends_behind) - 1 : 32;
    if (ends_behind != 0) break;
  }
  const int before = shared.boxes_before[sequence];
  const int n = shared.boxes_before[sequence + 1] - before;
  const int head = (at - before * heads) / n;
  const int head_begin = before * heads + head * n;
  const int head_end = head_begin + n;
  const int first_block = head_begin / parts.length;
  const int kv_head = head / params.head_tiles;
  const int first_head = (head - kv_head * params.head_tiles) * kTileHeads;
  const int n_tokens = a.n_tokens[sequence];
  const int skipped = tiles_before(a, n_tokens, kBoxTokens) - head_begin;
  const int until = min(head_end, end);
  const Segment segment = {sequence,
                           kv_head,
                           first_head,
                           min(a.group - first_head, kTileHeads),
                           n_tokens,
                           skipped + at,
                           skipped + until,
                           sequence * heads + head,
                           first_seen(a, n_tokens)};
  at = until;
  return {segment, first_block, (head_end - 1) / parts.length - first_block + 1, until == end};
}

template <class Rows>
__device__ const int32_t* Feeder<Rows>::table_of(const Task& task) const {
  return params.a.page_table + (int64_t)task.segment.sequence * params.a.page_table_stride;
}

template <class Rows>
__device__ void Feeder<Rows>::load_pages(const Task& task) {
  const int first = task.segment.begin / kBoxesPerPage + lane_index();
  const int last = (task.segment.end - 1) / kBoxesPerPage;
  pages = table_of(task)[min(first, last)];
  pages_behind = table_of(task)[min(first + 32, last)];
}

template <class Rows>
__device__ void Feeder<Rows>::tell(const Task& task) {
  const int slot = n_tasks % Shape::kTasks;
  if (lane_index() == 0) {
    shared.tasks[slot] = task;
    arrive(shared_address(&shared.told[slot]));
    if (n_tasks == 0) {
      shared.first_task = task;
      arrive(shared_address(&shared.first_told));
    }
  }
  ++n_tasks;
}

// Asks for keys and values, once the next stage is free: a lane for each line of a row.
template <class Rows>
__device__ void Feeder<Rows>::copy_box_pair(int head, int page, int row) {
  using Box = typename Rows::Box;
  static_assert(2 * Box::kParts <= 32);
  const int stage = n_boxes % Shape::kStages;
  wait_for_phase(shared_address(&shared.freed[stage]), n_boxes / Shape::kStages - 1);
  ++n_boxes;
  const uint32_t filled = shared_address(&shared.filled[stage]);
  if (lane_index() == 0) arrive_for_bytes(filled, Shape::kStageBytes);
  __syncwarp();
  if (lane_index() < 2 * Box::kParts) {
    const int part = lane_index() % Box::kParts;
    const bool is_value = lane_index() >= Box::kParts;
    const uint32_t to =
        shared_address(shared_memory()) + stage * Shape::kStageBytes + lane_index() * Box::kPartBytes;
    copy_box(to, is_value ? stream.values : stream.keys, part * Box::kLineBytes, row, head, page, filled);
  }
}

// Returns the next task. What that needs is asked for before the last boxes of this one.
template <class Rows>
__device__ Task Feeder<Rows>::feed(const Task& task) {
  const Segment& segment = task.segment;
  const int last_page = (segment.end - 1) / kBoxesPerPage;
  int loaded = segment.begin / kBoxesPerPage;
  Task next{};
#pragma unroll 1
  for (int box = segment.begin; box < segment.end; ++box) {
    if (box / kBoxesPerPage == loaded + 32) {
      loaded += 32;
      pages = pages_behind;
      pages_behind = table_of(task)[min(loaded + 32 + lane_index(), last_page)];
    }
    const int page = __shfl_sync(kAllLanes, pages, box / kBoxesPerPage - loaded);
    if (box == segment.end - 1) {
      next = next_task();
      if (next.n_boxes() > 0) load_pages(next);
    }
    copy_box_pair(segment.kv_head, page, box % kBoxesPerPage * kBoxTokens);
  }
  return next;
}

template <class Rows>
__device__ void Feeder<Rows>::run() {
  take_part();
  Task task = next_task();
  if (task.n_boxes() > 0) load_pages(task);
  while (task.n_boxes() > 0) {
    tell(task);
    task = feed(task);
  }
  tell(Task{});
}

template <class Rows>
__device__ __forceinline__ float* state_of(const AttentionParams<Rows>& params, const Task& task, int block) {
  return params.states + state_index(block, task.segment.pair) * StateLayout<Rows::kHeadDim>::kFloats;
}

// Merges all states of a head if no other is missing.
template <class Rows, class Crew>
__device__ void merge_if_last(const AttentionParams<Rows>& params, const Task& task, float* weights,
                              MergedSums& merge) {
  constexpr int kHeadDim = Rows::kHeadDim;
  if (!is_last<Crew>(params.counters + task.segment.pair, task.n_states)) return;
  finish<kHeadDim, Crew>(params.a, task.segment, state_of(params, task, task.first_block),
                         StateLayout<kHeadDim>::kFloats, task.n_states, weights, merge);
}

// The warps' states of a task become one, or at once the result of a head. By all warps that attend.
template <class Rows>
__device__ void end_task(const AttentionParams<Rows>& params, const Task& task, StreamShared<Rows>& shared,
                         float* states) {
  constexpr int kHeadDim = Rows::kHeadDim;
  constexpr int kWarps = StreamShape<Rows>::kWarps;
  constexpr int64_t kFloats = StateLayout<kHeadDim>::kFloats;
  using Crew = FirstWarps<kWarps>;
  const Segment& segment = task.segment;
  if (task.n_states == 1) {
    finish<kHeadDim, Crew>(params.a, segment, states, kFloats, kWarps, shared.weights, shared.merge);
    return;
  }
  store_block_state<kHeadDim, Crew>(states, kFloats, kWarps, segment.n_heads, shared.weights, shared.merge,
                                    state_of(params, task, (int)blockIdx.x));
  if (task.is_last) {  // nobody reads the warps' states any more
    merge_if_last<Rows, Crew>(params, task, states, shared.merge);
  } else {
    __syncwarp();
    if (lane_index() == 0) arrive(shared_address(&shared.first_state_written));
  }
}

// By the warp that sees to the part's first head, where others have boxes of it and this block has more to
// do.
template <class Rows>
__device__ void close_first_task(const AttentionParams<Rows>& params, StreamShared<Rows>& shared) {
  wait_for_phase(shared_address(&shared.first_told), 0);
  const Task task = shared.first_task;
  if (task.n_boxes() == 0 || task.n_states == 1 || task.is_last) return;
  wait_for_phase(shared_address(&shared.first_state_written), 0);
  merge_if_last<Rows, OneWarp>(params, task, shared.first_weights, shared.first_merge);
}

// One tile of a box in shared memory.
template <class Rows>
__device__ void attend_tile(const DecodeAttention& a, const Segment& segment, const Queries<Rows>& queries,
                            int tile, uint8_t* keys, RunningState<Rows>& state) {
  const int n_rows = segment.n_tokens - tile * Rows::kTileTokens;
  if (n_rows <= 0) return;
  float s[Rows::kTokenTiles][4];
  score_tile(a, segment, queries, tile, keys, s);
  softmax(state, s);
  uint8_t* values = keys + Rows::Box::kBytes;
  if (n_rows < Rows::kTileTokens) {
    Rows::Box::clear_rows(values, n_rows);
    order_before_copies();
  }
  add_values(values, n_rows, s, state);
}

// By each of the warps that attend.
template <class Rows>
__device__ void attend_boxes(const AttentionParams<Rows>& params, StreamShared<Rows>& shared) {
  using Shape = StreamShape<Rows>;
  float* states = reinterpret_cast<float*>(shared_memory() + Shape::kStages * Shape::kStageBytes);
  const int tile_of_box = warp_index() % Shape::kBoxWarps;
  int mine = warp_index() / Shape::kBoxWarps;  // this warp's next box of the part
  int n_before = 0;                            // boxes of the tasks before
  for (int n = 0;; ++n) {
    wait_for_phase(shared_address(&shared.told[n % Shape::kTasks]), n / Shape::kTasks);
    const Task task = shared.tasks[n % Shape::kTasks];
    if (task.n_boxes() == 0) return;
    RunningState<Rows> state = {{-CUDART_INF_F, -CUDART_INF_F}};
    Queries<Rows> queries;
    load_queries(params.a, task.segment, queries);
#pragma unroll 1
    for (; mine < n_before + task.n_boxes(); mine += Shape::kGroups) {
      const int stage = mine % Shape::kStages;
      uint8_t* keys = shared_memory() + stage * Shape::kStageBytes +
                      tile_of_box * Rows::kTileTokens * Rows::Box::kLineBytes;
      const int box = task.segment.begin + mine - n_before;
      wait_for_phase(shared_address(&shared.filled[stage]), mine / Shape::kStages);
      attend_tile(params.a, task.segment, queries, box * Shape::kBoxWarps + tile_of_box, keys, state);
      __syncwarp();
      if (lane_index() == 0) arrive(shared_address(&shared.freed[stage]));
    }
    n_before += task.n_boxes();
    store_state(state, states + warp_index() * StateLayout<Rows::kHeadDim>::kFloats);
    FirstWarps<Shape::kWarps>::wait();
    end_task(params, task, shared, states);
    FirstWarps<Shape::kWarps>::wait();
  }
}

template <class Rows>
__device__ void make_barriers(StreamShared<Rows>& shared) {
  using Shape = StreamShape<Rows>;
  const auto i = (int)threadIdx.x;
  if (i < Shape::kStages) {
    make_barrier(shared_address(&shared.filled[i]), 1);
    make_barrier(shared_address(&shared.freed[i]), Shape::kBoxWarps);
  }
  if (i < Shape::kTasks) make_barrier(shared_address(&shared.told[i]), 1);
  if (i == 0) {
    make_barrier(shared_address(&shared.first_told), 1);
    make_barrier(shared_address(&shared.first_state_written), Shape::kWarps);
  }
  barriers_are_made();
  __syncthreads();
}

template <class Rows>
__global__ void __launch_bounds__(StreamShape<Rows>::kThreads, 1)
    streamed_attention(const __grid_constant__ StreamParams<Rows> params) {
#if __CUDA_ARCH__ >= 900
  using Shape = StreamShape<Rows>;
  __shared__ StreamShared<Rows> shared;
  make_barriers(shared);
  let_next_begin();
  wait_for_inputs();
  if (warp_index() < Shape::kWarps) {
    clear_empty_sequences(params.attention.a, 32 * Shape::kWarps);
    attend_boxes(params.attention, shared);
  } else if (warp_index() == Shape::kWarps) {
    if (lane_index() < 2) prefetch_map(lane_index() == 0 ? params.keys : params.values);
    Feeder<Rows> feeder{params, params.attention, shared};
    feeder.run();
  } else {
    close_first_task(params.attention, shared);
  }
#endif
}

}  // namespace quire::cuda
