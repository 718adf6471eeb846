// The scan of a signvq step: a byte a row, by tables of 16 signed bytes for every group of four dims.
//
// A table lies in two pairs of registers, entries 0 to 7 and 8 to 15, moved up by the least of them so that
// all are positive. PRMT picks four rows' entries by the four nibbles of half a word; where a nibble's upper
// bit is set it gives the chosen byte's sign instead, which is 0. So the entry of a nibble is
//
//   PRMT(entries 0 to 7, nibble) + PRMT(entries 8 to 15, nibble ^ 8)
//
// of which one is 0, and sums of four rows are sums of words: no byte overflows, as tables are made so that
// no sum does. A group whose entries span more than 127 (it outweighs all others; there is one at most) has
// the rest of them in a second table.
#include "kernels/cuda/check.cuh"
#include "kernels/cuda/device/early_start.cuh"
#include "kernels/cuda/device/signvq_step.cuh"

#include "format/code_format.h"

namespace quire::cuda {

namespace {

constexpr int kMostGroups = kMaxHeadDim / 4;
constexpr int kWords = 16;  // entries of a table

struct ScanShared {
  uint4 tables[kMostGroups];
  uint4 second_tables[kMostGroups];
  float products[kMostGroups][kWords];
  float query[kMaxHeadDim];  // the group's mean, in the frame
  float most[kMostGroups];
  int least[kMostGroups];
  int counts[kSignVqWarps][kSignVqBins];  // of one part, or of the warps'
  float scale;
  bool has_second;
};

__device__ __forceinline__ uint32_t pick(uint32_t low, uint32_t high, uint32_t nibbles) {
  uint32_t bytes;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(bytes) : "r"(low), "r"(high), "r"(nibbles));
  return bytes;
}

// Adds the entries of the nibbles of a word: those of rows 0 to 3 to `first`, of rows 4 to 7 to `second`.
__device__ __forceinline__ void add_entries(const uint4& table, uint32_t word, uint32_t& first,
                                            uint32_t& second) {
  const uint32_t turned = word ^ 0x88888888u;
  first += pick(table.x, table.y, word) + pick(table.z, table.w, turned);
  second += pick(table.x, table.y, word >> 16) + pick(table.z, table.w, turned >> 16);
}

// Bits as the CPU has them: no product is contracted with a sum.
__device__ __forceinline__ float add(float x, float y) { return __fadd_rn(x, y); }
__device__ __forceinline__ float times(float x, float y) { return __fmul_rn(x, y); }

__device__ __forceinline__ void make_query(const SignVqParams& p, int pair, bool is_first,
                                           ScanShared& shared) {
  constexpr int kTogether = 8;  // heads whose numbers are asked for at a time
  const SignVqAttention& a = p.a;
  const int d = a.head_dim;
  const float* q = a.queries + (int64_t)pair * a.group * d;
  const auto share = (float)a.group;
  const int j = (int)threadIdx.x;
  if (j >= d) return;
  const float balance = a.statistics.balance[(int64_t)pair * d + j];
  float mean = 0.0f;
  float plain = 0.0f;
  for (int first = 0; first < a.group; first += kTogether) {
    float x[kTogether];
#pragma unroll
    for (int h = 0; h < kTogether; ++h) x[h] = first + h < a.group ? q[(first + h) * d + j] : 0.0f;
#pragma unroll
    for (int h = 0; h < kTogether; ++h) {
      if (first + h >= a.group) break;
      mean = add(mean, __fdiv_rn(times(times(x[h], a.scale), balance), share));
      plain += x[h];
    }
  }
  shared.query[j] = mean;
  if (is_first && a.mean_queries != nullptr) a.mean_queries[(int64_t)pair * d + j] = plain / share;
}

// Code words of a thread: entries threadIdx.x + 256 i.
using ThreadWords = float4[kMostGroups * kWords / kSignVqThreads];

__device__ __forceinline__ void load_words(const SignVqParams& p, int pair, ThreadWords& words) {
  const int n_words = p.a.head_dim / 4 * kWords;
  const auto* book = reinterpret_cast<const float4*>(p.a.statistics.codebook) + (int64_t)pair * n_words;
#pragma unroll
  for (int i = 0; i < kMostGroups * kWords / kSignVqThreads; ++i) {
    const int at = (int)threadIdx.x + kSignVqThreads * i;
    words[i] = at < n_words ? book[at] : float4{0.0f, 0.0f, 0.0f, 0.0f};
  }
}

// index_codebook_tables(). Sixteen threads a group.
__device__ __forceinline__ void make_products(int n_groups, const ThreadWords& words, ScanShared& shared) {
#pragma unroll
  for (int k = 0; k < kMostGroups * kWords / kSignVqThreads; ++k) {
    const int i = (int)threadIdx.x + kSignVqThreads * k;
    if (i >= n_groups * kWords) break;
    const float4& x = words[k];
    const float* q = shared.query + i / kWords * 4;
    float sum = add(0.0f, times(q[0], x.x));
    sum = add(sum, times(q[1], x.y));
    sum = add(sum, times(q[2], x.z));
    sum = add(sum, times(q[3], x.w));
    shared.products[i / kWords][i % kWords] = sum;
    float most = fabsf(sum);
    const unsigned lanes = __activemask();  // n_groups * 16 is a multiple of 32: all lanes or none
    for (int half = 8; half > 0; half /= 2) most = fmaxf(most, __shfl_xor_sync(lanes, most, half));
    if (i % kWords == 0) shared.most[i / kWords] = most;
  }
}

// One thread: the factor that keeps sums in a byte, and the header.
__device__ void choose_scale(const SignVqParams& p, ScanShared& shared) {
  const int n_groups = p.a.head_dim / 4;
  float total = 0.0f;
  for (int g = 0; g < n_groups; ++g) total = add(total, shared.most[g]);
  shared.scale = total > 0x1p-100f ? __fdiv_rn(add(127.0f, -times(0.5f, (float)n_groups)), total) : 0.0f;
  shared.has_second = false;
}

// A thread a group.
__device__ void make_tables(int n_groups, ScanShared& shared) {
  const int g = (int)threadIdx.x;
  if (g >= n_groups) return;
  int entries[kWords];
  int least = 127;
  int largest = -127;
#pragma unroll
  for (int i = 0; i < kWords; ++i) {
    entries[i] = (int)rintf(times(shared.scale, shared.products[g][i]));
    least = min(least, entries[i]);
    largest = max(largest, entries[i]);
  }
  shared.least[g] = least;
  uint32_t words[4] = {0, 0, 0, 0};
  uint32_t rest[4] = {0, 0, 0, 0};
#pragma unroll
  for (int i = 0; i < kWords; ++i) {
    const int entry = entries[i] - least;
    words[i / 4] |= (uint32_t)min(entry, 127) << (i % 4 * 8);
    rest[i / 4] |= (uint32_t)max(entry - 127, 0) << (i % 4 * 8);
  }
  shared.tables[g] = {words[0], words[1], words[2], words[3]};
  shared.second_tables[g] = {rest[0], rest[1], rest[2], rest[3]};
  if (largest - least > 127) shared.has_second = true;
}

// saturated_16() of kernels/index.inl.
__device__ int saturated_16(float x) { return (int)fminf(fmaxf(rintf(x), -32768.0f), 32767.0f); }

__device__ void make_header(const SignVqParams& p, int pair, const ScanShared& shared) {
  int least = 0;
  for (int g = 0; g < p.a.head_dim / 4; ++g) least += shared.least[g];
  const float unit = shared.scale > 0.0f ? __fdiv_rn(1.0f, shared.scale) : 0.0f;
  p.headers()[pair] = {least, saturated_16(times(times(times(128.0f, 1.44269504f), 128.0f), unit))};
}

// The codes of 8 rows in each of kPages pages, as a lane has them.
template <int kParts, int kPages>
struct LaneCodes {
  uint4 parts[kParts][kPages];
};
__device__ __forceinline__ uint4 load_codes(const uint8_t* from) {
  uint4 x;
  asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
               : "l"(from));
  return x;
}

// What a warp scans: the pages that its lanes have in a step are lane / 8, and 4 more with two each.
template <int kPages>
struct WarpPages {
  const int32_t* table;
  const uint8_t* index;
  int64_t page_stride;
  int n_pages;

  // Of a turn of 4 kPages pages; behind the last page, that one once more.
  __device__ __forceinline__ int page_at(int turn, int i) const {
    return 4 * (kPages * turn + i) + lane_index() / 8;
  }
  __device__ __forceinline__ void numbers(int turn, int (&numbers)[kPages]) const {
#pragma unroll
    for (int i = 0; i < kPages; ++i) numbers[i] = table[min(page_at(turn, i), n_pages - 1)];
  }
  __device__ __forceinline__ const uint8_t* codes(int number) const {
    return index + number * page_stride + lane_index() % 8 * 16;
  }
};

__device__ __forceinline__ void count_bytes(int* counts, uint32_t word) {
#pragma unroll
  for (int i = 0; i < 4; ++i) atomicAdd(&counts[word >> (8 * i) & 255], 1);
}

// Turns first, first + stride .. last - 1 of a warp. When a part of the codes is used, that of the next turn
// is asked for; a table is read while the one before it is used.
template <int kParts, int kPages>
struct WarpScan {
  WarpPages<kPages> pages;
  int first;
  int last;
  int stride;
  int numbers[kPages];  // of the turn after the one under way
  LaneCodes<kParts, kPages> codes;

  // Asks for the first codes.
  __device__ __forceinline__ void begin() {
    if (first >= last) return;
    pages.numbers(first, numbers);
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
#pragma unroll
      for (int i = 0; i < kPages; ++i)
        codes.parts[part][i] = load_codes(pages.codes(numbers[i]) + 128 * part);
    }
    pages.numbers(min(first + stride, last - 1), numbers);
  }

  __device__ __forceinline__ void add_part(const uint4& table, int part, int j,
                                           uint32_t (&sums)[kPages][2]) const {
#pragma unroll
    for (int i = 0; i < kPages; ++i) {
      const uint4& x = codes.parts[part][i];
      add_entries(table, j == 0 ? x.x : j == 1 ? x.y : j == 2 ? x.z : x.w, sums[i][0], sums[i][1]);
    }
  }

  __device__ __forceinline__ void run(uint8_t* bytes, int* counts, const ScanShared& shared) {
    if (first >= last) return;
    const bool has_second = shared.has_second;
    uint4 table = shared.tables[0];
    for (int turn = first; turn < last; turn += stride) {
      uint32_t sums[kPages][2];
      const uint8_t* next[kPages];
#pragma unroll
      for (int i = 0; i < kPages; ++i) {
        sums[i][0] = sums[i][1] = 0x01010101u;
        next[i] = pages.codes(numbers[i]);
      }
      pages.numbers(min(turn + 2 * stride, last - 1), numbers);
#pragma unroll
      for (int part = 0; part < kParts; ++part) {
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          const uint4 next_table = shared.tables[(4 * part + j + 1) % (4 * kParts)];
          add_part(table, part, j, sums);
          table = next_table;
        }
        if (has_second) {
#pragma unroll
          for (int j = 0; j < 4; ++j) add_part(shared.second_tables[4 * part + j], part, j, sums);
        }
#pragma unroll
        for (int i = 0; i < kPages; ++i) codes.parts[part][i] = load_codes(next[i] + 128 * part);
      }
#pragma unroll
      for (int i = 0; i < kPages; ++i) {
        const int page = pages.page_at(turn, i);
        if (page >= pages.n_pages) continue;
        *reinterpret_cast<uint2*>(bytes + 64 * page + 8 * (lane_index() % 8)) = {sums[i][0], sums[i][1]};
        count_bytes(counts, sums[i][0]);
        count_bytes(counts, sums[i][1]);
      }
    }
  }
};

// Kept rows are read as they are: their bytes go where the mass is summed, and none counts.
__device__ void leave_out_kept(const SignVqParams& p, int pair, const StepRange& steps, int* counts) {
  const int i = (int)threadIdx.x;
  if (i >= p.a.n_kept_rows) return;
  const int row = p.a.statistics.kept[(int64_t)pair * kMostKeptRows + i];
  if (row < steps.first * kStepRows || row >= steps.last * kStepRows) return;
  uint8_t* byte = p.bytes(pair) + row;
  const int value = *byte;
  *byte = 0;
  p.kept_bytes(pair)[i] = (uint8_t)value;
  atomicSub(&counts[value], 1);
}

template <int kParts, int kPages>
__global__ void __launch_bounds__(kSignVqThreads, 2) scan_signvq(const __grid_constant__ SignVqParams p) {
  __shared__ ScanShared shared;
  const SignVqAttention& a = p.a;
  const int pair = (int)blockIdx.x / p.plan.scan_blocks;
  const int block = (int)blockIdx.x % p.plan.scan_blocks;
  const int sequence = pair / a.n_kv_heads;
  const int n_pages = a.n_tokens[sequence] / 64;
  let_next_begin();
  const bool is_apart = p.plan.block_parts > 1;
  const int part = is_apart ? kSignVqWarps * block + warp_index() : block;
  const StepRange steps = steps_of(n_pages, part, p.n_parts());
  constexpr int kTurns = kStepPages / (4 * kPages);  // of a step
  WarpScan<kParts, kPages> scan;
  scan.pages = {a.page_table + (int64_t)sequence * a.page_table_stride,
                a.index.data + pair % a.n_kv_heads * a.index.head_stride, a.index.page_stride, n_pages};
  scan.first = steps.first * kTurns + (is_apart ? 0 : warp_index());
  scan.last = steps.last * kTurns;
  scan.stride = is_apart ? 1 : kSignVqWarps;
  ThreadWords words;
  load_words(p, pair, words);
  scan.begin();
  make_query(p, pair, block == 0, shared);
  for (int i = (int)threadIdx.x; i < kSignVqWarps * kSignVqBins; i += kSignVqThreads) shared.counts[0][i] = 0;
  if (n_pages == 0) return;
  __syncthreads();
  make_products(a.head_dim / 4, words, shared);
  __syncthreads();
  if (threadIdx.x == 0) choose_scale(p, shared);
  __syncthreads();
  make_tables(a.head_dim / 4, shared);
  __syncthreads();
  if (block == 0 && threadIdx.x == 0) make_header(p, pair, shared);
  scan.run(p.bytes(pair), shared.counts[is_apart ? warp_index() : 0], shared);
  __syncthreads();
  for (int i = 0; i < p.plan.block_parts; ++i) {
    const int at = block * p.plan.block_parts + i;
    leave_out_kept(p, pair, steps_of(n_pages, at, p.n_parts()), shared.counts[i]);
  }
  __syncthreads();
  int* to = p.counts(pair) + block * p.plan.block_parts * kSignVqBins;
  for (int i = (int)threadIdx.x; i < p.plan.block_parts * kSignVqBins; i += kSignVqThreads) {
    to[i] = shared.counts[0][i];
  }
}

template <int kParts, int kPages>
void launch(const SignVqParams& params, Stream stream) {
  const int n_blocks = params.a.n_sequences * params.a.n_kv_heads * params.plan.scan_blocks;
  scan_signvq<kParts, kPages><<<n_blocks, kSignVqThreads, 0, stream>>>(params);
  check(cudaGetLastError(), "launching the scan of signs");
}

}  // namespace

void launch_signvq_scan(const SignVqParams& params, Stream stream) {
  switch (params.a.head_dim) {
    case 64: return launch<4, 2>(params, stream);
    case 80: return launch<5, 2>(params, stream);
    case 96: return launch<6, 2>(params, stream);
    case 128: return launch<8, 2>(params, stream);
    default: return launch<16, 1>(params, stream);
  }
}

}  // namespace quire::cuda
