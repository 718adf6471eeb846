#include "gpu/gemv.h"

#include "gpu/device/activation.cuh"
#include "gpu/device/launch.cuh"
#include "kernels/cuda/device/warp.cuh"

namespace quire::gpu {

namespace {

using cuda::kAllLanes;

constexpr int kWarps = 8;
constexpr int kThreads = 32 * kWarps;
// Units of 32 columns of 16 rows, 1 KiB, that a warp has under way.
constexpr int kUnits = 4;
// Blocks of a multiprocessor.
constexpr int kResident = 2;

struct Task {
  const uint16_t* low;   // rows 0 .. 7 of the first tile
  const uint16_t* high;  // rows 8 .. 15
  int tile_rows;         // rows from one tile to the next, in both
  int last_low;          // rows from `low`, and from `high`, that may be read
  int last_high;
  int columns;
  int n_tiles;
  Vectors vectors;
};

// What a lane holds of 32 columns: of two rows.
struct Unit {
  uint4 low, high;
};
// And of a vector.
struct Part {
  float4 x, y;
};

__device__ __forceinline__ uint4 load_once(const uint16_t* from) {
  uint4 v;
  asm volatile("ld.global.nc.L1::no_allocate.L2::256B.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(from));
  return v;
}
// Stays where it is asked for: the compiler would put it off until it is used.
__device__ __forceinline__ float4 load_now(const float* from) {
  float4 v;
  asm volatile("ld.global.v4.f32 {%0,%1,%2,%3}, [%4];"
               : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
               : "l"(from));
  return v;
}

// Eight numbers of one vector as two bf16 each: the number rounded, and what that leaves.
struct Split {
  uint32_t top[4];
  uint32_t rest[4];
};
__device__ __forceinline__ Split split(const float4& a, const float4& b) {
  const float x[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
  Split s;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    s.top[i] = cuda::pack(__nv_bfloat16{}, x[2 * i], x[2 * i + 1]);
    const float first = __uint_as_float(s.top[i] << 16);
    const float second = __uint_as_float(s.top[i] & 0xffff0000u);
    s.rest[i] = cuda::pack(__nv_bfloat16{}, x[2 * i] - first, x[2 * i + 1] - second);
  }
  return s;
}

// Both orders of columns are one: lane 4 g + c holds columns 8 c .. 8 c + 7 of a unit, of rows g and g + 8
// and of vector g.
__device__ __forceinline__ void multiply_unit(float (&sums)[4], const Unit& w, const Part& part) {
  const Split s = split(part.x, part.y);
  const uint32_t first[4] = {w.low.x, w.high.x, w.low.y, w.high.y};
  const uint32_t second[4] = {w.low.z, w.high.z, w.low.w, w.high.w};
  cuda::multiply_add(__nv_bfloat16{}, sums, first, {s.top[0], s.top[1]});
  cuda::multiply_add(__nv_bfloat16{}, sums, second, {s.top[2], s.top[3]});
  cuda::multiply_add(__nv_bfloat16{}, sums, first, {s.rest[0], s.rest[1]});
  cuda::multiply_add(__nv_bfloat16{}, sums, second, {s.rest[2], s.rest[3]});
}

struct Partial {
  float sums[kWarps][kMostVectors][kTileRows + 1];
  float scale[kMostVectors];
};

// 1 / root mean square of each vector.
__device__ __forceinline__ void find_scales(const Vectors& v, Partial& partial) {
  for (int vector = cuda::warp_index(); vector < v.n; vector += kWarps) {
    float sum = 0;
    if (v.square_sums != nullptr) {
      const int n_sums = v.width / kTileRows;
      for (int i = cuda::lane_index(); i < n_sums; i += 32) sum += v.square_sums[vector * n_sums + i];
#pragma unroll
      for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(kAllLanes, sum, step);
    }
    if (cuda::lane_index() != 0) continue;
    partial.scale[vector] = v.square_sums != nullptr ? 1.0f / sqrtf(sum / (float)v.width + v.epsilon) : 1.0f;
  }
}

// Where a warp is in the block's tile. The block goes through the columns in rounds, in each of which its
// warps have kUnits units each side by side: rows are read in long pieces. Units behind the last are zeros.
class Round {
 public:
  __device__ explicit Round(const Task& task)
      : task_(task),
        n_units_(task.columns / kColumnUnit),
        unit_(cuda::warp_index() * kUnits),
        has_vector_(cuda::lane_index() / 4 < task.vectors.n) {
    const int column = 8 * (cuda::lane_index() % 4);
    const int group = cuda::lane_index() / 4;
    const int row = (int)blockIdx.x * task.tile_rows + group;
    low_ = task.low + (int64_t)min(row, task.last_low) * task.columns + column;
    high_ = task.high + (int64_t)min(row, task.last_high) * task.columns + column;
    x_ = task.vectors.x + (int64_t)group * task.vectors.stride + column;
  }
  // The same for all warps of a block.
  __device__ int n_rounds() const { return (n_units_ + kWarps * kUnits - 1) / (kWarps * kUnits); }
  __device__ void next() { unit_ += kWarps * kUnits; }
  // Unit i of the round.
  __device__ void load_rows(int i, Unit& to) const {
    to.low = to.high = {0, 0, 0, 0};
    if (unit_ + i >= n_units_) return;
    to.low = load_once(low_ + (unit_ + i) * kColumnUnit);
    to.high = load_once(high_ + (unit_ + i) * kColumnUnit);
  }
  __device__ void load_part(int i, Part& to) const {
    to.x = to.y = {0, 0, 0, 0};
    if (!has_vector_ || unit_ + i >= n_units_) return;
    to.x = load_now(x_ + (unit_ + i) * kColumnUnit);
    to.y = load_now(x_ + (unit_ + i) * kColumnUnit + 4);
  }

 private:
  const Task& task_;
  const int n_units_;
  int unit_;
  const bool has_vector_;
  const uint16_t* low_;
  const uint16_t* high_;
  const float* x_;
};

// The sums of all warps of the block's tile. Where a unit has been multiplied the same one of the next round
// is asked for: something is under way all the time.
__device__ __forceinline__ void multiply_tile(const Task& task, Partial& partial) {
  const int lane = cuda::lane_index();
  Round round(task);
  Unit held[kUnits];
  Part parts[kUnits];
#pragma unroll
  for (int i = 0; i < kUnits; ++i) round.load_rows(i, held[i]);
  wait_for_inputs();
#pragma unroll
  for (int i = 0; i < kUnits; ++i) round.load_part(i, parts[i]);
  find_scales(task.vectors, partial);
  float sums[4] = {0, 0, 0, 0};
  for (int left = round.n_rounds(); left > 0; --left) {
    round.next();
#pragma unroll
    for (int i = 0; i < kUnits; ++i) {
      multiply_unit(sums, held[i], parts[i]);
      round.load_rows(i, held[i]);
      round.load_part(i, parts[i]);
    }
  }
  const int column = 2 * (lane % 4);
  auto& to = partial.sums[cuda::warp_index()];
  to[column][lane / 4] = sums[0];
  to[column + 1][lane / 4] = sums[1];
  to[column][lane / 4 + 8] = sums[2];
  to[column + 1][lane / 4 + 8] = sums[3];
  __syncthreads();
}

__device__ __forceinline__ float total(const Partial& partial, int vector, int row) {
  float sum = 0;
#pragma unroll
  for (int warp = 0; warp < kWarps; ++warp) sum += partial.sums[warp][vector][row];
  return sum * partial.scale[vector];
}

__global__ void __launch_bounds__(kThreads, kResident)
    store_kernel(const __grid_constant__ Task task, float* out, int stride, int rows) {
  __shared__ Partial partial;
  let_next_begin();
  multiply_tile(task, partial);
  const int vector = (int)threadIdx.x / kTileRows;
  const int row = (int)blockIdx.x * kTileRows + (int)threadIdx.x % kTileRows;
  if (vector >= task.vectors.n || row >= rows) return;
  out[(int64_t)vector * stride + row] = total(partial, vector, (int)threadIdx.x % kTileRows);
}

__global__ void __launch_bounds__(kThreads, kResident)
    add_kernel(const __grid_constant__ Task task, StreamOut out, int rows) {
  __shared__ Partial partial;
  let_next_begin();
  multiply_tile(task, partial);
  const int vector = (int)threadIdx.x / kTileRows;
  if (vector >= task.vectors.n) return;  // whole half warps
  const int row = (int)blockIdx.x * kTileRows + (int)threadIdx.x % kTileRows;
  const int64_t at = (int64_t)vector * rows + row;
  const float x = out.x[at] + total(partial, vector, (int)threadIdx.x % kTileRows);
  out.x[at] = x;
  out.weighted[at] = x * out.next_weight[row];
  float square = x * x;
  const unsigned half = 0xffffu << (threadIdx.x & 16);
#pragma unroll
  for (int step = 8; step > 0; step /= 2) square += __shfl_xor_sync(half, square, step, 16);
  if (threadIdx.x % kTileRows == 0) out.square_sums[vector * (rows / kTileRows) + (int)blockIdx.x] = square;
}

__global__ void __launch_bounds__(kThreads, kResident)
    gated_kernel(const __grid_constant__ Task task, Activation activation, float* out, int rows) {
  __shared__ Partial partial;
  let_next_begin();
  multiply_tile(task, partial);
  const int vector = (int)threadIdx.x / 8;
  const int row = (int)threadIdx.x % 8;
  if (vector >= task.vectors.n) return;
  const float gate = total(partial, vector, row);
  const float up = total(partial, vector, row + 8);
  out[(int64_t)vector * rows + (int)blockIdx.x * 8 + row] = activated(gate, activation) * up;
}

Task task_of(const DeviceMatrix& m, const Vectors& vectors) {
  return {m.data,
          m.data + (int64_t)8 * m.columns,
          kTileRows,
          m.rows - 1,
          m.rows - 9,
          m.columns,
          row_tiles(m.rows),
          vectors};
}

dim3 grid_of(const Task& task) { return dim3(static_cast<unsigned>(task.n_tiles)); }

void check_task(const DeviceMatrix& m, const Vectors& v) {
  QUIRE_CHECK(v.n >= 1 && v.n <= kMostVectors && m.columns % kColumnUnit == 0 && m.rows >= kTileRows);
}

}  // namespace

void multiply_store(const DeviceMatrix& matrix, const Vectors& vectors, float* out, int stride,
                    cuda::Stream stream) {
  check_task(matrix, vectors);
  const Task task = task_of(matrix, vectors);
  launch_step(store_kernel, grid_of(task), kThreads, 0, stream, task, out, stride, matrix.rows);
}

void multiply_add(const DeviceMatrix& matrix, const Vectors& vectors, const StreamOut& out,
                  cuda::Stream stream) {
  check_task(matrix, vectors);
  QUIRE_CHECK(matrix.rows % kTileRows == 0);
  const Task task = task_of(matrix, vectors);
  launch_step(add_kernel, grid_of(task), kThreads, 0, stream, task, out, matrix.rows);
}

void multiply_gated(const DeviceMatrix& gate_up, const Vectors& vectors, Activation activation, float* out,
                    cuda::Stream stream) {
  check_task(gate_up, vectors);
  const int n = gate_up.rows / 2;
  QUIRE_CHECK(n % 8 == 0);
  const Task task = {
      gate_up.data, gate_up.data + (int64_t)n * gate_up.columns, 8, n - 1, n - 1, gate_up.columns, n / 8,
      vectors};
  launch_step(gated_kernel, grid_of(task), kThreads, 0, stream, task, activation, out, n);
}

}  // namespace quire::gpu
