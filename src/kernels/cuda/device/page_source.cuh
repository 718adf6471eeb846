// Where the sparse kernel finds the codes of a candidate: in the pages of its pool, all on the device.
#pragma once

#include "kernels/cuda/device/sparse_block.cuh"

namespace quire::cuda {

// row: 64 * page of the block + token; candidate: its index among the block's.
struct PageSource {
  using Params = SparseParams;

  __device__ PageSource(const Params&, const SparseBlock&, const uint32_t* /*rows*/, int /*n*/,
                        int /*n_before*/) {}

  template <int kRowBytes>
  __device__ const uint8_t* key(const SparseBlock& block, uint32_t row, int /*candidate*/) const {
    return block.page_of(block.keys, (int)(row / 64)) + (int)(row % 64) * kRowBytes;
  }
  template <int kRowBytes>
  __device__ const uint8_t* value(const SparseBlock& block, uint32_t row, int /*candidate*/) const {
    return block.page_of(block.values, (int)(row / 64)) + (int)(row % 64) * kRowBytes;
  }
  // f16.
  template <int kRowBytes>
  __device__ const uint16_t* value_norm(const SparseBlock& block, uint32_t row) const {
    const uint8_t* page = block.page_of(block.values, (int)(row / 64));
    return reinterpret_cast<const uint16_t*>(page + 64 * kRowBytes + 2 * (int)(row % 64));
  }
};

}  // namespace quire::cuda
