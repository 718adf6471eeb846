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

// Keys of four bits: the four bytes of a row's planes at place j, one bit of eight numbers each, are four
// bytes of nibbles, number i and number i + 4 of the eight.
template <bool kBack>
__device__ void copy_nibbles(const LayoutParams& p, const HeadParts& cpu, uint8_t* device) {
  const int row_bytes = sparse_key_row_bytes(4, p.head_dim);
  const int plane_bytes = p.head_dim / 8;
  for (int at = (int)threadIdx.x; at < kPageRows * row_bytes / 4; at += (int)blockDim.x) {
    const int row = at / (row_bytes / 4);
    const int j = at % (row_bytes / 4);
    uint8_t* nibbles = device + row * row_bytes + j / 4 * 16 + j % 4;
    uint8_t from[4];
    uint8_t* planes[4];
    for (int i = 0; i < 4; ++i) {
      planes[i] = i == 0 ? cpu.index + j * kPageRows + row : cpu.keys + (row * 3 + i - 1) * plane_bytes + j;
      from[i] = j >= plane_bytes ? 0 : kBack ? nibbles[4 * i] : *planes[i];
    }
    if (kBack && j >= plane_bytes) continue;
    for (int to = 0; to < 4; ++to) {
      uint32_t byte = 0;
      for (int i = 0; i < 4; ++i) {
        const int bit = kBack ? 3 - to : to;  // of the first of two numbers
        const int place = kBack ? i : 3 - i;
        byte |= (from[i] >> bit & 1u) << place | (from[i] >> (bit + 4) & 1u) << (place + 4);
      }
      (kBack ? *planes[to] : nibbles[4 * to]) = (uint8_t)byte;
    }
  }
}

// Codes of a unit of 16 numbers, first those whose nibbles are in the first word, in the order of nibbles.
__device__ int number_of(int place) { return place / 8 * 8 + place % 2 * 4 + place % 8 / 2; }

// The 16 codes at `unit` of a row of the CPU's values, and back.
__device__ void read_codes(const uint8_t* row, int unit, int bits, int plane_bytes, uint32_t (&codes)[16]) {
  for (int place = 0; place < 16; ++place) {
    const int number = number_of(place);
    codes[place] = 0;
    for (int plane = 0; plane < bits; ++plane) {
      const int byte = row[2 + plane * plane_bytes + 2 * unit + number / 8];
      codes[place] = 2 * codes[place] + (byte >> number % 8 & 1);
    }
  }
}
__device__ void write_codes(const uint32_t (&codes)[16], int unit, int bits, int plane_bytes, uint8_t* row) {
  for (int plane = 0; plane < bits; ++plane) {
    uint32_t word = 0;
    for (int place = 0; place < 16; ++place)
      word |= (codes[place] >> (bits - 1 - plane) & 1) << number_of(place);
    row[2 + plane * plane_bytes + 2 * unit] = (uint8_t)word;
    row[2 + plane * plane_bytes + 2 * unit + 1] = (uint8_t)(word >> 8);
  }
}

// Place of the lower two bits of code `i` of the second word where codes have three bits.
__device__ int low_bits_at(int i) { return i < 4 ? 4 * i : 4 * (i - 4) + 2; }

// Two words of a unit, without the norm; and back.
__device__ uint2 pack_codes(const uint32_t (&codes)[16], int bits) {
  uint2 words = {0, 0};
  for (int i = 0; i < 8; ++i) {
    const uint32_t second = codes[8 + i];
    words.x |= codes[i] << 4 * i;
    if (bits == 4) words.y |= second << 4 * i;
    if (bits == 3) words.x |= second >> 2 << (4 * i + 3), words.y |= (second & 3) << low_bits_at(i);
    if (bits == 2) words.x |= second << (4 * i + 2);
  }
  return words;
}
__device__ void unpack_codes(uint2 words, int bits, uint32_t (&codes)[16]) {
  const uint32_t mask = (1u << bits) - 1;
  for (int i = 0; i < 8; ++i) {
    codes[i] = words.x >> 4 * i & mask;
    codes[8 + i] = bits == 4   ? words.y >> 4 * i & 15
                   : bits == 3 ? (words.y >> low_bits_at(i) & 3) | (words.x >> (4 * i + 3) & 1) << 2
                               : words.x >> (4 * i + 2) & 3;
  }
}

template <bool kBack>
__device__ void copy_values(const LayoutParams& p, uint8_t* cpu, uint8_t* device) {
  const int n_units = p.head_dim / 16;
  const int plane_bytes = p.head_dim / 8;
  const int cpu_row_bytes = 2 + p.value_bits * plane_bytes;
  auto* units = reinterpret_cast<uint2*>(device);
  auto* norms = reinterpret_cast<uint16_t*>(device + kPageRows * sparse_value_row_bytes(p.head_dim));
  for (int at = (int)threadIdx.x; at < kPageRows * n_units; at += (int)blockDim.x) {
    const int row = at / n_units;
    const int unit = at % n_units;
    uint8_t* cpu_row = cpu + row * cpu_row_bytes;
    uint32_t codes[16];
    if (kBack) {
      unpack_codes(units[at], p.value_bits, codes);
      write_codes(codes, unit, p.value_bits, plane_bytes, cpu_row);
      if (unit == 0) cpu_row[0] = (uint8_t)norms[row], cpu_row[1] = (uint8_t)(norms[row] >> 8);
    } else {
      const uint32_t norm = cpu_row[0] | (uint32_t)cpu_row[1] << 8;
      read_codes(cpu_row, unit, p.value_bits, plane_bytes, codes);
      uint2 words = pack_codes(codes, p.value_bits);
      if (p.value_bits < 4) words.y |= norm << 16;
      units[at] = words;
      if (unit == 0) norms[row] = (uint16_t)norm;
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
  if (p.key_bits == 4) {
    copy_nibbles<kBack>(p, cpu, device.keys);
  } else {
    copy_part<kBack>(device.keys, sparse_key_bytes(p.key_bits, p.head_dim),
                     [&](int at) { return key_byte(p, cpu, at); });
  }
  copy_values<kBack>(p, cpu.values, device.values);
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
