// Records of pages, written to memory of the host.
#include "kernels/cuda/check.cuh"
#include "kernels/cuda/offloaded_rows.h"

#include "format/code_format.h"

namespace quire::cuda {

namespace {

struct RecordLayout {
  SparsePages from;
  RowPlane index;
  RowPlane records;
  RowPlane value_norms;
  const int32_t* pages;
  int n_kv_heads;
  int index_bytes;
  int key_row_bytes;
  int value_row_bytes;
  int value_offset;
  int record_bytes;
  int norm_bytes;
};

__device__ uint8_t* part_of(const RowPlane& plane, int page, int kv_head) {
  return const_cast<uint8_t*>(plane.data) + page * plane.page_stride + kv_head * plane.head_stride;
}

// Word `word` of a record.
__device__ uint32_t record_word(const RecordLayout& l, const uint8_t* key, const uint8_t* value, int word) {
  const int at = 4 * word;
  if (at < l.key_row_bytes) return *reinterpret_cast<const uint32_t*>(key + at);
  if (at < l.value_offset || at >= l.value_offset + l.value_row_bytes) return 0;
  return *reinterpret_cast<const uint32_t*>(value + at - l.value_offset);
}

// A block a page of one KV head. Records are written in pieces of 16 bytes by neighbours, as the link wants
// them.
__global__ void record_kernel(const RecordLayout l) {
  const int at = (int)blockIdx.x / l.n_kv_heads;
  const int kv_head = (int)blockIdx.x % l.n_kv_heads;
  const int page = l.pages[at];
  const auto copy = [](const uint8_t* from, uint8_t* to, int n_bytes) {
    for (int i = 4 * (int)threadIdx.x; i < n_bytes; i += 4 * (int)blockDim.x)
      *reinterpret_cast<uint32_t*>(to + i) = *reinterpret_cast<const uint32_t*>(from + i);
  };
  copy(part_of(l.from.index, at, kv_head), part_of(l.index, page, kv_head), l.index_bytes);
  const uint8_t* keys = part_of(l.from.keys, at, kv_head);
  const uint8_t* values = part_of(l.from.values, at, kv_head);
  if (l.norm_bytes > 0)
    copy(values + kPageRows * l.value_row_bytes, part_of(l.value_norms, page, kv_head), l.norm_bytes);
  auto* records = reinterpret_cast<uint4*>(part_of(l.records, page, kv_head));
  const int units = l.record_bytes / 16;
  for (int i = (int)threadIdx.x; i < kPageRows * units; i += (int)blockDim.x) {
    const uint8_t* key = keys + i / units * l.key_row_bytes;
    const uint8_t* value = values + i / units * l.value_row_bytes;
    const int word = i % units * 4;
    records[i] = {record_word(l, key, value, word), record_word(l, key, value, word + 1),
                  record_word(l, key, value, word + 2), record_word(l, key, value, word + 3)};
  }
}

__global__ void count_kernel(uint32_t* step) { *step += 1; }

}  // namespace

void lay_records(const SparsePages& from, const RowPlane& index, const OffloadedRows& rows,
                 const int32_t* pages, int n_pages, int n_kv_heads, int head_dim, int key_bits,
                 int value_bits, Stream stream) {
  if (n_pages == 0) return;
  const RecordLayout layout = {from,
                               index,
                               rows.records,
                               rows.value_norms,
                               pages,
                               n_kv_heads,
                               sparse_index_bytes(head_dim),
                               sparse_key_row_bytes(key_bits, head_dim),
                               sparse_value_row_bytes(head_dim),
                               record_value_offset(key_bits, head_dim),
                               record_bytes(key_bits, head_dim),
                               value_norm_bytes(value_bits)};
  record_kernel<<<static_cast<unsigned>(n_pages * n_kv_heads), 256, 0, stream>>>(layout);
  check(cudaGetLastError(), "putting rows outside");
}

void count_step(uint32_t* step, Stream stream) {
  count_kernel<<<1, 1, 0, stream>>>(step);
  check(cudaGetLastError(), "counting a step");
}

}  // namespace quire::cuda
