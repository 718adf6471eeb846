#include "kernels/cuda/check.cuh"
#include "kernels/cuda/sparse_attention.h"

#include "format/code_format.h"

namespace quire::cuda {

namespace {

struct LayoutParams {
  SparsePages cpu;
  SparsePages device;
  const int32_t* pages;      // of the device
  const int32_t* cpu_pages;  // the same places in the CPU's pool
  int n_kv_heads;
  int head_dim;
  int key_bits;
  int value_bits;
};

// Parts of one page of one KV head.
struct HeadParts {
  uint8_t* index;
  uint8_t* keys;
  uint8_t* values;
};
__device__ HeadParts parts_of(const SparsePages& pages, int page, int kv_head) {
  const auto of = [=](const RowPlane& plane) {
    return const_cast<uint8_t*>(plane.data) + page * plane.page_stride + kv_head * plane.head_stride;
  };
  return {of(pages.index), of(pages.keys), of(pages.values)};
}

// Where byte `at` of a part on the device lies in the CPU's bytes; nullptr: it is padding.
__device__ uint8_t* index_byte(const LayoutParams& p, const HeadParts& cpu, int at) {
  const int row_bytes = p.head_dim / 8;
  const int n_signs = row_bytes * kPageRows;
  if (at < n_signs) return cpu.index + at % row_bytes * kPageRows + at / row_bytes;
  const int place = (at - n_signs) / 2;
  return cpu.index + n_signs + 2 * (8 * (place % 8) + place / 8) + at % 2;
}
__device__ uint8_t* key_byte(const LayoutParams& p, const HeadParts& cpu, int at) {
  const int row_bytes = sparse_key_row_bytes(p.key_bits, p.head_dim);
  const int plane_bytes = p.head_dim / 8;
  const int row = at / row_bytes;
  const int plane = at / 4 % p.key_bits;
  const int byte = at % row_bytes / (4 * p.key_bits) * 4 + at % 4;
  if (byte >= plane_bytes) return nullptr;
  if (plane == 0) return cpu.index + byte * kPageRows + row;
  return cpu.keys + (row * (p.key_bits - 1) + plane - 1) * plane_bytes + byte;
}
__device__ uint8_t* value_byte(const LayoutParams& p, const HeadParts& cpu, int at) {
  const int row_bytes = sparse_value_row_bytes(p.head_dim);
  const int plane_bytes = p.head_dim / 8;
  const int cpu_row_bytes = 2 + p.value_bits * plane_bytes;
  if (at >= kPageRows * row_bytes) {
    const int i = at - kPageRows * row_bytes;
    return cpu.values + i / 2 * cpu_row_bytes + i % 2;
  }
  uint8_t* row = cpu.values + at / row_bytes * cpu_row_bytes;
  const int plane = at % 8 / 2;
  if (plane < p.value_bits) return row + 2 + plane * plane_bytes + at % row_bytes / 8 * 2 + at % 2;
  return plane == 3 ? row + at % 2 : nullptr;
}

template <bool kBack, class Place>
__device__ void copy_part(uint8_t* device, int n_bytes, const Place& place) {
  for (int at = (int)threadIdx.x; at < n_bytes; at += (int)blockDim.x) {
    uint8_t* cpu = place(at);
    if (kBack) {
      if (cpu != nullptr) *cpu = device[at];
    } else {
      device[at] = cpu != nullptr ? *cpu : 0;
    }
  }
}

// A block a page of one KV head.
template <bool kBack>
__global__ void lay_out_page(const LayoutParams p) {
  const int at = (int)blockIdx.x / p.n_kv_heads;
  const int kv_head = (int)blockIdx.x % p.n_kv_heads;
  const HeadParts cpu = parts_of(p.cpu, p.cpu_pages[at], kv_head);
  const HeadParts device = parts_of(p.device, p.pages[at], kv_head);
  copy_part<kBack>(device.index, sparse_index_bytes(p.head_dim),
                   [&](int at) { return index_byte(p, cpu, at); });
  copy_part<kBack>(device.keys, sparse_key_bytes(p.key_bits, p.head_dim),
                   [&](int at) { return key_byte(p, cpu, at); });
  copy_part<kBack>(device.values, sparse_value_bytes(p.head_dim),
                   [&](int at) { return value_byte(p, cpu, at); });
}

}  // namespace

void lay_sparse_pages(const SparsePages& from, const SparsePages& to, const int32_t* pages, int n_pages,
                      int n_kv_heads, int head_dim, int key_bits, int value_bits, Stream stream,
                      const int32_t* from_pages) {
  if (n_pages == 0) return;
  const int32_t* cpu_pages = from_pages != nullptr ? from_pages : pages;
  const LayoutParams params = {from, to, pages, cpu_pages, n_kv_heads, head_dim, key_bits, value_bits};
  lay_out_page<false><<<n_pages * n_kv_heads, 256, 0, stream>>>(params);
  check(cudaGetLastError(), "laying out pages");
}
void take_sparse_pages(const SparsePages& from, const SparsePages& to, const int32_t* pages, int n_pages,
                       int n_kv_heads, int head_dim, int key_bits, int value_bits, Stream stream,
                       const int32_t* to_pages) {
  if (n_pages == 0) return;
  const int32_t* cpu_pages = to_pages != nullptr ? to_pages : pages;
  const LayoutParams params = {to, from, pages, cpu_pages, n_kv_heads, head_dim, key_bits, value_bits};
  lay_out_page<true><<<n_pages * n_kv_heads, 256, 0, stream>>>(params);
  check(cudaGetLastError(), "taking pages back");
}

}  // namespace quire::cuda
