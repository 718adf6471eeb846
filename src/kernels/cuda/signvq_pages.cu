#include "kernels/cuda/check.cuh"
#include "kernels/cuda/signvq_attention.h"

#include "format/code_format.h"

namespace quire::cuda {

namespace {

struct LayoutParams {
  RowPlane keys;
  RowPlane values;
  SignVqPages to;
  const int32_t* from_pages;
  const int32_t* to_pages;
  int n_kv_heads;
  int head_dim;
};

__device__ const uint8_t* part_of(const RowPlane& plane, int page, int kv_head) {
  return plane.data + page * plane.page_stride + kv_head * plane.head_stride;
}

// Value i of a plane, [ceil(head_dim / 8)] bytes of a row.
__device__ uint32_t plane_bit(const uint8_t* plane, int i) { return plane[i / 8] >> (i % 8) & 1; }

__device__ uint32_t index_word(const uint8_t* index, int at) {
  const int group = at / 32 * 4 + at % 4;
  const int octet = at / 4 % 8;
  uint32_t word = 0;
  for (int i = 0; i < 8; ++i) {
    word |= (uint32_t)(index[group / 2 * kPageRows + 8 * octet + i] >> (4 * (group % 2)) & 15) << (4 * i);
  }
  return word;
}

// One of the CPU's rows behind the index: parameters, upper plane, lower plane.
struct CpuRow {
  const uint8_t* bytes;
  int head_dim;

  __device__ uint32_t parameters(int group) const {
    const uint8_t* at = bytes + 4 * group;
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
  }
  __device__ uint32_t code(int i) const {
    const uint8_t* planes = bytes + (head_dim + 31) / 32 * 4;
    return plane_bit(planes, i) << 1 | plane_bit(planes + (head_dim + 7) / 8, i);
  }
};

__device__ uint32_t key_word(const CpuRow& row, const uint8_t* index, int t, int group, int at) {
  if (at == 3) return row.parameters(group);
  uint32_t word = 0;
  for (int i = 0; i < 32; ++i) {
    const int dim = 32 * group + i;
    if (dim >= row.head_dim) break;
    const int pair = i / 2;
    if (at == 0) {
      word |= (uint32_t)(index[dim / 8 * kPageRows + t] >> (dim % 8) & 1) << (pair + 16 * (i % 2));
    } else if (pair / 8 == at - 1) {
      word |= row.code(dim) << (2 * (pair % 8) + 16 * (i % 2));
    }
  }
  return word;
}

__device__ uint32_t value_word(const CpuRow& row, int unit, int at) {
  if (at == 1) return row.parameters(unit / 2);
  uint32_t word = 0;
  for (int i = 0; i < 16; ++i) word |= row.code(16 * unit + i) << (2 * i);
  return word;
}

// A block a page of one KV head, a thread a word at a time.
__global__ void lay_out_page(const LayoutParams p) {
  const int at = (int)blockIdx.x / p.n_kv_heads;
  const int kv_head = (int)blockIdx.x % p.n_kv_heads;
  const int d = p.head_dim;
  const int cpu_row_bytes = (d + 31) / 32 * 4 + 2 * ((d + 7) / 8);
  const uint8_t* index = part_of(p.keys, p.from_pages[at], kv_head);
  const uint8_t* keys = index + kPageRows * ((d + 7) / 8);
  const uint8_t* values = part_of(p.values, p.from_pages[at], kv_head);
  auto* to_index =
      reinterpret_cast<uint32_t*>(const_cast<uint8_t*>(part_of(p.to.index, p.to_pages[at], kv_head)));
  for (int i = (int)threadIdx.x; i < signvq_index_bytes(d) / 4; i += (int)blockDim.x) {
    to_index[i] = index_word(index, i);
  }
  auto* to_rows =
      reinterpret_cast<uint32_t*>(const_cast<uint8_t*>(part_of(p.to.rows, p.to_pages[at], kv_head)));
  const int row_words = signvq_row_bytes(d) / 4;
  const int key_words = signvq_key_bytes(d) / 4;
  for (int i = (int)threadIdx.x; i < kPageRows * row_words; i += (int)blockDim.x) {
    const int t = i / row_words;
    const int word = i % row_words;
    if (word < key_words) {
      to_rows[i] = key_word({keys + t * cpu_row_bytes, d}, index, t, word / 4, word % 4);
    } else if (word - key_words < d / 16 * 2) {
      to_rows[i] =
          value_word({values + t * cpu_row_bytes, d}, (word - key_words) / 2, (word - key_words) % 2);
    } else {
      to_rows[i] = 0;
    }
  }
}

}  // namespace

void lay_signvq_pages(const RowPlane& keys, const RowPlane& values, const SignVqPages& to,
                      const int32_t* from_pages, const int32_t* to_pages, int n_pages, int n_kv_heads,
                      int head_dim, Stream stream) {
  if (n_pages == 0) return;
  const LayoutParams params = {keys, values, to, from_pages, to_pages, n_kv_heads, head_dim};
  lay_out_page<<<n_pages * n_kv_heads, 256, 0, stream>>>(params);
  check(cudaGetLastError(), "laying out signvq pages");
}

}  // namespace quire::cuda
