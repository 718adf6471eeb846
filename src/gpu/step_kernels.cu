#include "gpu/step_kernels.h"

#include <algorithm>

#include "base/fp8.h"
#include "gpu/device/activation.cuh"
#include "gpu/device/launch.cuh"
#include "kernels/cuda/device/exact_number.cuh"
#include "kernels/cuda/device/frame.cuh"

namespace quire::gpu {

namespace {

constexpr int kThreads = 256;
constexpr int kTokensPerPage = 64;

unsigned blocks(int64_t n, int each = kThreads) { return static_cast<unsigned>((n + each - 1) / each); }

__device__ __forceinline__ float number(const uint16_t* from) { return bf16_to_f32(*from); }

// A number on its way to fp8 pages, as f16.
__device__ __forceinline__ uint16_t rounded_to_fp8(float x) {
  return cuda::rounded_number(fp8_to_f32(f32_to_fp8(x)), Format::kF16);
}

// In double precision until the end, as on the CPU (model/rope.h). position: may be below 0.
__device__ void turn(const Angles& angles, int row, int position) {
  for (int i = (int)threadIdx.x; i < angles.half; i += (int)blockDim.x) {
    double sine = 0;
    double cosine = 0;
    sincos((double)position * angles.frequencies[i], &sine, &cosine);
    angles.cosine[(int64_t)row * angles.half + i] = (float)(cosine * (double)angles.factor);
    angles.sine[(int64_t)row * angles.half + i] = (float)(sine * (double)angles.factor);
  }
}

// Which row of the exact pages a step's own becomes. In a ring sinks have the first places, and the others
// take turns; when tokens have left, sinks are as far from a query as if they stood before the oldest row.
__device__ void find_row(const StepState& state, const Angles& angles, int row) {
  const StepState::WindowState& window = state.window;
  const int n_before = state.n_before[row];
  if (window.n_rows == 0) {
    if (threadIdx.x != 0) return;
    state.exact_tokens[row] = n_before + 1 - state.first[row];
    state.row[row] = n_before - state.first[row];
    return;
  }
  const int shift = max(0, n_before - (window.n_rows - 1));
  Angles back = angles;
  back.factor = 1.0f;
  back.cosine = window.cosine;
  back.sine = window.sine;
  turn(back, row, -shift);
  if (threadIdx.x != 0) return;
  state.exact_tokens[row] = min(n_before + 1, window.n_rows);
  const int n_others = window.n_rows - window.n_sinks;
  state.row[row] =
      n_before < window.n_rows ? n_before : window.n_sinks + (n_before - window.n_sinks) % n_others;
  window.sinks[row] = min(n_before + 1, window.n_sinks);
}

__global__ void begin_kernel(DeviceMatrix embedding, float scale, StepState state, Angles angles,
                             Angles window_angles, EmbedOut out) {
  const int row = (int)blockIdx.y;
  const int width = embedding.columns;
  const int at = (int)(blockIdx.x * blockDim.x + threadIdx.x);
  let_next_begin();
  wait_for_inputs();
  if (blockIdx.x == 0) {
    turn(angles, row, state.n_before[row]);
    turn(window_angles, row, state.n_before[row]);
    if (threadIdx.x == 0 && state.all_tokens != nullptr) state.all_tokens[row] = state.n_before[row] + 1;
    find_row(state, angles, row);
  }
  if (at >= width) return;  // whole half warps
  const float x = number(embedding.data + (int64_t)max(state.tokens[row], 0) * width + at) * scale;
  out.x[(int64_t)row * width + at] = x;
  out.weighted[(int64_t)row * width + at] = x * out.next_weight[at];
  float square = x * x;
  const unsigned half = 0xffffu << (threadIdx.x & 16);
  for (int step = 8; step > 0; step /= 2) square += __shfl_xor_sync(half, square, step, 16);
  if (at % kTileRows == 0) out.square_sums[row * (width / kTileRows) + at / kTileRows] = square;
}

// One over the root of the mean square of a head. Every thread of the head sums it for itself, in one order.
__device__ float norm_scale(const float* head, const float* bias, int head_dim, float epsilon) {
  float sum = 0;
  for (int i = 0; i < head_dim; ++i) {
    const float x = bias != nullptr ? head[i] + bias[i] : head[i];
    sum += x * x;
  }
  return 1.0f / sqrtf(sum / (float)head_dim + epsilon);
}

// Number d of head `head` of a row, turned.
__device__ float turned(const HeadShape& s, const float* row, const HeadWeights& weights, int head, int d,
                        const Angles& angles, int angle_row) {
  const float* from = row + head * s.head_dim;
  const float* bias = weights.bias != nullptr ? weights.bias + head * s.head_dim : nullptr;
  const bool turns = head < s.n_heads + s.n_kv_heads;
  const float* norm = head < s.n_heads ? weights.query_norm : weights.key_norm;
  const bool is_normed = turns && norm != nullptr;
  const float scale = is_normed ? norm_scale(from, bias, s.head_dim, weights.epsilon) : 1.0f;
  const auto get = [&](int i) {
    const float x = bias != nullptr ? from[i] + bias[i] : from[i];
    return is_normed ? x * scale * norm[i] : x;
  };
  const float x = get(d);
  if (!turns || d >= 2 * angles.half) return x;
  const int pair = d % angles.half;
  const float c = angles.cosine[(int64_t)angle_row * angles.half + pair];
  const float sine = angles.sine[(int64_t)angle_row * angles.half + pair];
  return d < angles.half ? x * c - get(d + angles.half) * sine : x * c + get(d - angles.half) * sine;
}

__global__ void step_heads_kernel(HeadShape s, const float* qkv, HeadWeights weights, Angles angles,
                                  StepState state, float* queries, ExactPages pages) {
  const int row = (int)blockIdx.y;
  const int at = (int)(blockIdx.x * blockDim.x + threadIdx.x);
  let_next_begin();
  wait_for_inputs();
  if (at >= row_width(s)) return;
  const int head = at / s.head_dim;
  const int d = at % s.head_dim;
  const float x = turned(s, qkv + (int64_t)row * row_width(s), weights, head, d, angles, row);
  if (head < s.n_heads) {
    queries[(int64_t)row * s.n_heads * s.head_dim + at] = x;
    return;
  }
  const int token = state.row[row];
  const int page = pages.page_table[row * pages.page_table_stride + token / kTokensPerPage];
  const bool is_key = head < s.n_heads + s.n_kv_heads;
  const cuda::RowPlane& plane = is_key ? pages.keys : pages.values;
  const int kv_head = head - s.n_heads - (is_key ? 0 : s.n_kv_heads);
  uint8_t* side = const_cast<uint8_t*>(plane.data) + page * plane.page_stride + kv_head * plane.head_stride;
  const int place = token % kTokensPerPage * s.head_dim + d;
  if (pages.format == Format::kFP8) {
    side[place] = f32_to_fp8(x);
  } else {
    reinterpret_cast<uint16_t*>(side)[place] = cuda::rounded_number(x, pages.format);
  }
}

__global__ void prompt_heads_kernel(HeadShape s, const float* qkv, HeadWeights weights, Angles angles,
                                    Format format, PromptRows out) {
  const int row = (int)blockIdx.y;
  const int at = (int)(blockIdx.x * blockDim.x + threadIdx.x);
  if (at >= row_width(s)) return;
  const int head = at / s.head_dim;
  const int d = at % s.head_dim;
  const bool is_fp8 = format == Format::kFP8;
  const float number = turned(s, qkv + (int64_t)row * row_width(s), weights, head, d, angles, row);
  if (head < s.n_heads) {
    out.queries[(int64_t)row * s.n_heads * s.head_dim + at] =
        cuda::rounded_number(number, is_fp8 ? Format::kF16 : format);
    return;
  }
  const uint16_t x = is_fp8 ? rounded_to_fp8(number) : cuda::rounded_number(number, format);
  const bool is_key = head < s.n_heads + s.n_kv_heads;
  const int kv_head = head - s.n_heads - (is_key ? 0 : s.n_kv_heads);
  (is_key ? out.keys : out.values)[((int64_t)kv_head * out.stride + out.first + row) * s.head_dim + d] = x;
}

__global__ void angles_kernel(Angles angles, int first) {
  turn(angles, (int)blockIdx.x, first + (int)blockIdx.x);
}

__global__ void embed_kernel(DeviceMatrix embedding, float scale, const int32_t* tokens, float* x) {
  const int width = embedding.columns;
  const int at = (int)(blockIdx.x * blockDim.x + threadIdx.x);
  const int64_t row = blockIdx.y;
  if (at < width) x[row * width + at] = number(embedding.data + (int64_t)tokens[row] * width + at) * scale;
}

// One over the root of the mean square of a row, for every thread of a block.
__device__ __forceinline__ float row_norm_scale(const float* row, int width, float epsilon) {
  __shared__ float sums[kThreads / 32];
  float sum = 0;
  for (int i = (int)threadIdx.x; i < width; i += kThreads) sum += row[i] * row[i];
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(cuda::kAllLanes, sum, step);
  if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum;
  __syncthreads();
  sum = 0;
  for (int i = 0; i < kThreads / 32; ++i) sum += sums[i];
  return 1.0f / sqrtf(sum / (float)width + epsilon);
}

// A block a row.
__global__ void normalise_kernel(const float* x, const float* weight, float epsilon, int width,
                                 uint16_t* out) {
  const float* from = x + (int64_t)blockIdx.x * width;
  let_next_begin();
  wait_for_inputs();
  const float scale = row_norm_scale(from, width, epsilon);
  for (int i = (int)threadIdx.x; i < width; i += kThreads) {
    out[(int64_t)blockIdx.x * width + i] = cuda::rounded_number(from[i] * scale * weight[i], Format::kBF16);
  }
}

__global__ void gate_kernel(const float* gate_up, int half, Activation activation, uint16_t* out) {
  const int at = (int)(blockIdx.x * blockDim.x + threadIdx.x);
  const int64_t row = blockIdx.y;
  let_next_begin();
  wait_for_inputs();
  if (at >= half) return;
  const float gate = gate_up[row * 2 * half + at];
  const float up = gate_up[row * 2 * half + half + at];
  out[row * half + at] = cuda::rounded_number(activated(gate, activation) * up, Format::kBF16);
}

// A block a row.
__global__ void add_normed_kernel(const float* branch, const float* weight, float epsilon, int width,
                                  BranchOut out) {
  const int64_t row = (int64_t)blockIdx.x * width;
  let_next_begin();
  wait_for_inputs();
  const float scale = row_norm_scale(branch + row, width, epsilon);
  const unsigned half = 0xffffu << (threadIdx.x & 16);
  for (int i = (int)threadIdx.x; i < width; i += kThreads) {  // whole half warps
    const float x = out.x[row + i] + branch[row + i] * scale * weight[i];
    out.x[row + i] = x;
    if (out.weighted == nullptr) continue;
    out.weighted[row + i] = x * out.next_weight[i];
    float square = x * x;
    for (int step = 8; step > 0; step /= 2) square += __shfl_xor_sync(half, square, step, 16);
    if (i % kTileRows == 0) out.square_sums[(row + i) / kTileRows] = square;
  }
}

__global__ void cap_kernel(float* logits, int64_t n, float cap) {
  const int64_t at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
  let_next_begin();
  wait_for_inputs();
  if (at < n) logits[at] = cap * tanhf(logits[at] / cap);
}

__global__ void round_kernel(const float* x, int64_t n, uint16_t* out) {
  const int64_t at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
  let_next_begin();
  wait_for_inputs();
  if (at < n) out[at] = cuda::rounded_number(x[at], Format::kBF16);
}

__global__ void convert_kernel(uint16_t* x, int64_t n) {
  const int64_t at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
  if (at < n) x[at] = cuda::rounded_number(__half2float(__ushort_as_half(x[at])), Format::kBF16);
}

// A block a row of all KV heads.
template <bool kBack>
__global__ void pages_kernel(HeadShape s, PromptRows rows, int first, ExactPages pages, const int32_t* table,
                             int first_at, const int32_t* places) {
  const int row = (int)blockIdx.x;
  const int at = first_at + (places != nullptr ? places[row] : row);
  const int page = table[at / kTokensPerPage];
  for (int i = (int)threadIdx.x; i < 2 * s.n_kv_heads * s.head_dim; i += (int)blockDim.x) {
    const int kv_head = i / s.head_dim % s.n_kv_heads;
    const int d = i % s.head_dim;
    const bool is_key = i < s.n_kv_heads * s.head_dim;
    const cuda::RowPlane& plane = is_key ? pages.keys : pages.values;
    uint8_t* side = const_cast<uint8_t*>(plane.data) + page * plane.page_stride + kv_head * plane.head_stride;
    const int place = at % kTokensPerPage * s.head_dim + d;
    uint16_t& in_rows =
        (is_key ? rows.keys : rows.values)[((int64_t)kv_head * rows.stride + first + row) * s.head_dim + d];
    uint16_t& in_page = reinterpret_cast<uint16_t*>(side)[place];
    const bool is_fp8 = pages.format == Format::kFP8;
    if (kBack) {
      in_rows = is_fp8 ? cuda::rounded_number(fp8_to_f32(side[place]), Format::kF16) : in_page;
    } else if (is_fp8) {
      side[place] = f32_to_fp8(f16_to_f32(in_rows));
    } else {
      in_page = in_rows;
    }
  }
}

__device__ Frame frame_of(const cuda::FramePlane& plane, int kv_head, int d) {
  const auto of = [=](const float* p) { return p == nullptr ? nullptr : p + kv_head * d; };
  return {d, of(plane.mean), of(plane.balance), of(plane.signs)};
}

// Half a warp a row.
__global__ void unframe_rows_kernel(HeadShape s, const float* framed, cuda::FramePlane plane, Format format,
                                    uint16_t* out, int stride, int first) {
  __shared__ float row[kMaxHeadDim];
  const int t = (int)blockIdx.x % kTokensPerPage;
  const int kv_head = (int)blockIdx.x / kTokensPerPage % s.n_kv_heads;
  const int page = (int)blockIdx.x / kTokensPerPage / s.n_kv_heads;
  const Frame frame = frame_of(plane, kv_head, s.head_dim);
  const float* from = framed + (int64_t)blockIdx.x / kTokensPerPage * kTokensPerPage * s.head_dim;
  for (int j = cuda::row_lane(); j < s.head_dim; j += cuda::kRowLanes) row[j] = from[t * s.head_dim + j];
  __syncwarp();
  cuda::rotate_row_back(frame, row);
  uint16_t* to = out + ((int64_t)kv_head * stride + first + page * kTokensPerPage + t) * s.head_dim;
  for (int j = cuda::row_lane(); j < s.head_dim; j += cuda::kRowLanes) {
    float x = row[j];
    if (frame.balance != nullptr) x *= frame.balance[j];
    if (frame.mean != nullptr) x += frame.mean[j];
    to[j] = cuda::rounded_number(x, format);
  }
}

// Half a warp a head.
__global__ void frame_kernel(HeadShape s, const float* queries, cuda::FramePlane plane, float scale,
                             float* framed, float* bias) {
  __shared__ float row[kMaxHeadDim];
  const int head = (int)blockIdx.x;
  const int64_t at = (int64_t)blockIdx.y * s.n_heads + head;
  const Frame frame = frame_of(plane, head / (s.n_heads / s.n_kv_heads), s.head_dim);
  const float* q = queries + at * s.head_dim;
  float sum = 0;
  for (int j = cuda::row_lane(); j < s.head_dim; j += cuda::kRowLanes) {
    row[j] = frame.balance != nullptr ? q[j] * frame.balance[j] : q[j];
    if (frame.mean != nullptr) sum += q[j] * frame.mean[j];
  }
  for (int step = 8; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffu, sum, step, 16);
  __syncwarp();
  cuda::rotate_row(frame, row);
  for (int j = cuda::row_lane(); j < s.head_dim; j += cuda::kRowLanes) framed[at * s.head_dim + j] = row[j];
  if (threadIdx.x == 0) bias[at] = scale * sum;
}

__global__ void unframe_kernel(HeadShape s, cuda::FramePlane plane, const float* bias, float* outputs,
                               float* log_sums) {
  __shared__ float row[kMaxHeadDim];
  const int head = (int)blockIdx.x;
  const int64_t at = (int64_t)blockIdx.y * s.n_heads + head;
  const Frame frame = frame_of(plane, head / (s.n_heads / s.n_kv_heads), s.head_dim);
  float* out = outputs + at * s.head_dim;
  for (int j = cuda::row_lane(); j < s.head_dim; j += cuda::kRowLanes) row[j] = out[j];
  __syncwarp();
  cuda::rotate_row_back(frame, row);
  for (int j = cuda::row_lane(); j < s.head_dim; j += cuda::kRowLanes) {
    out[j] = frame.mean != nullptr ? row[j] + frame.mean[j] : row[j];
  }
  if (threadIdx.x == 0 && bias != nullptr) log_sums[at] += bias[at];  // -inf stays: no row was read
}

dim3 grid(int columns, int rows) { return dim3(blocks(columns), static_cast<unsigned>(rows)); }

}  // namespace

void begin_step(const DeviceMatrix& embedding, float scale, const StepState& state, int n,
                const Angles& angles, const Angles& window_angles, const EmbedOut& out, cuda::Stream stream) {
  launch_step(begin_kernel, grid(embedding.columns, n), kThreads, 0, stream, embedding, scale, state, angles,
              window_angles, out);
}

void finish_step_heads(const HeadShape& shape, const float* qkv, const HeadWeights& weights,
                       const Angles& angles, const StepState& state, int n, float* queries,
                       const ExactPages& pages, cuda::Stream stream) {
  launch_step(step_heads_kernel, grid(row_width(shape), n), kThreads, 0, stream, shape, qkv, weights, angles,
              state, queries, pages);
}

void finish_prompt_heads(const HeadShape& shape, const float* qkv, const HeadWeights& weights,
                         const Angles& angles, int n, Format format, const PromptRows& out,
                         cuda::Stream stream) {
  prompt_heads_kernel<<<grid(row_width(shape), n), kThreads, 0, stream>>>(shape, qkv, weights, angles, format,
                                                                          out);
  cuda::check(cudaGetLastError(), "finishing heads");
}

void make_angles(const Angles& angles, int first, int n, cuda::Stream stream) {
  angles_kernel<<<static_cast<unsigned>(n), 64, 0, stream>>>(angles, first);
  cuda::check(cudaGetLastError(), "making angles");
}

void embed_rows(const DeviceMatrix& embedding, float scale, const int32_t* tokens, int n, float* x,
                cuda::Stream stream) {
  constexpr int kMostRows = 65535;  // of a grid's second dimension
  for (int first = 0; first < n; first += kMostRows) {
    embed_kernel<<<grid(embedding.columns, std::min(kMostRows, n - first)), kThreads, 0, stream>>>(
        embedding, scale, tokens + first, x + int64_t{first} * embedding.columns);
    cuda::check(cudaGetLastError(), "embedding tokens");
  }
}

void normalise_rows(const float* x, const float* weight, float epsilon, int n, int width, uint16_t* out,
                    cuda::Stream stream) {
  launch_step(normalise_kernel, dim3(static_cast<unsigned>(n)), kThreads, 0, stream, x, weight, epsilon,
              width, out);
}

void gate_rows(const float* gate_up, int n, int half, Activation activation, uint16_t* out,
               cuda::Stream stream) {
  launch_step(gate_kernel, grid(half, n), kThreads, 0, stream, gate_up, half, activation, out);
}

void add_normed(const float* branch, const float* weight, float epsilon, int n, int width,
                const BranchOut& out, cuda::Stream stream) {
  launch_step(add_normed_kernel, dim3(static_cast<unsigned>(n)), kThreads, 0, stream, branch, weight, epsilon,
              width, out);
}

void cap_logits(float* logits, int64_t n, float cap, cuda::Stream stream) {
  launch_step(cap_kernel, dim3(blocks(n)), kThreads, 0, stream, logits, n, cap);
}

void f16_to_bf16(uint16_t* x, int64_t n, cuda::Stream stream) {
  convert_kernel<<<blocks(n), kThreads, 0, stream>>>(x, n);
  cuda::check(cudaGetLastError(), "converting numbers");
}

void round_rows(const float* x, int64_t n, uint16_t* out, cuda::Stream stream) {
  launch_step(round_kernel, dim3(blocks(n)), kThreads, 0, stream, x, n, out);
}

void copy_to_pages(const HeadShape& shape, const PromptRows& rows, int first, int n, const ExactPages& pages,
                   const int32_t* table, cuda::Stream stream, int at) {
  if (n <= 0) return;
  pages_kernel<false>
      <<<static_cast<unsigned>(n), kThreads, 0, stream>>>(shape, rows, first, pages, table, at, nullptr);
  cuda::check(cudaGetLastError(), "copying rows to pages");
}

void copy_from_pages(const HeadShape& shape, const ExactPages& pages, const int32_t* table, int n,
                     const PromptRows& rows, int first, cuda::Stream stream, int at, const int32_t* places) {
  if (n <= 0) return;
  pages_kernel<true>
      <<<static_cast<unsigned>(n), kThreads, 0, stream>>>(shape, rows, first, pages, table, at, places);
  cuda::check(cudaGetLastError(), "copying rows from pages");
}

void unframe_rows(const HeadShape& shape, const float* framed, int n_pages, const cuda::FramePlane& frame,
                  Format format, uint16_t* out, int stride, int first, cuda::Stream stream) {
  const auto n = static_cast<unsigned>(n_pages * shape.n_kv_heads * kTokensPerPage);
  unframe_rows_kernel<<<n, cuda::kRowLanes, 0, stream>>>(shape, framed, frame, format, out, stride, first);
  cuda::check(cudaGetLastError(), "turning rows back");
}

void frame_queries(const HeadShape& shape, const float* queries, int n, const cuda::FramePlane& frame,
                   float scale, float* framed, float* bias, cuda::Stream stream) {
  const dim3 heads(static_cast<unsigned>(shape.n_heads), static_cast<unsigned>(n));
  frame_kernel<<<heads, cuda::kRowLanes, 0, stream>>>(shape, queries, frame, scale, framed, bias);
  cuda::check(cudaGetLastError(), "turning queries");
}

void unframe_outputs(const HeadShape& shape, int n, const cuda::FramePlane& frame, const float* bias,
                     float* outputs, float* log_sums, cuda::Stream stream) {
  const dim3 heads(static_cast<unsigned>(shape.n_heads), static_cast<unsigned>(n));
  unframe_kernel<<<heads, cuda::kRowLanes, 0, stream>>>(shape, frame, bias, outputs, log_sums);
  cuda::check(cudaGetLastError(), "turning outputs back");
}

}  // namespace quire::gpu
