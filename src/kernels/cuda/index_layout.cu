#include "kernels/cuda/check.cuh"
#include "kernels/cuda/device/warp.cuh"
#include "kernels/cuda/sparse_attention.h"

#include "format/code_format.h"

namespace quire::cuda {

namespace {

// Where byte `at` of an index page in the CPU's order lies by rows.
__device__ int place_by_rows(int at, int row_bytes) {
  const int n_signs = row_bytes * kPageRows;
  if (at < n_signs) return at % kPageRows * row_bytes + at / kPageRows;
  const int row = (at - n_signs) / 2;
  return n_signs + 2 * (8 * (row % 8) + row / 8) + at % 2;
}

// A block a page of one KV head. Shared memory: the page.
template <bool kToRows>
__global__ void permute_index(RowPlane index, const int32_t* pages, int n_kv_heads, int head_dim) {
  uint8_t* copy = shared_memory();
  const int n_bytes = kPageRows * (head_dim / 8 + 2);
  uint8_t* page = const_cast<uint8_t*>(index.data) + pages[(int)blockIdx.x / n_kv_heads] * index.page_stride +
                  (int)blockIdx.x % n_kv_heads * index.head_stride;
  for (int i = (int)threadIdx.x; i < n_bytes; i += (int)blockDim.x) copy[i] = page[i];
  __syncthreads();
  for (int i = (int)threadIdx.x; i < n_bytes; i += (int)blockDim.x) {
    const int by_rows = place_by_rows(i, head_dim / 8);
    if (kToRows)
      page[by_rows] = copy[i];
    else
      page[i] = copy[by_rows];
  }
}

template <bool kToRows>
void permute(const RowPlane& index, const int32_t* pages, int n_pages, int n_kv_heads, int head_dim,
             Stream stream) {
  if (n_pages == 0) return;
  permute_index<kToRows><<<n_pages * n_kv_heads, 256, kPageRows*(head_dim / 8 + 2), stream>>>(
      index, pages, n_kv_heads, head_dim);
  check(cudaGetLastError(), "reordering an index");
}

}  // namespace

void lay_index_by_rows(const RowPlane& index, const int32_t* pages, int n_pages, int n_kv_heads, int head_dim,
                       Stream stream) {
  permute<true>(index, pages, n_pages, n_kv_heads, head_dim, stream);
}
void lay_index_by_planes(const RowPlane& index, const int32_t* pages, int n_pages, int n_kv_heads,
                         int head_dim, Stream stream) {
  permute<false>(index, pages, n_pages, n_kv_heads, head_dim, stream);
}

}  // namespace quire::cuda
