// Exact rows by a list of units of 16, wherever these lie, as decode_attention.cuh reads them: what it takes
// for a page is four entries of a list (page_bounds.h), and what it takes for a row of the page is one.
#pragma once

#include "kernels/cuda/device/exact_rows.cuh"

namespace quire::cuda {

template <class Number_, int kHeadDim_>
struct UnitRows : ExactRows<Number_, kHeadDim_> {
  using Base = ExactRows<Number_, kHeadDim_>;
  static constexpr int kTableBytes = 16;
  static constexpr int64_t kUnitBytes = int64_t{2} * Base::kTileTokens * kHeadDim_;

  // Where unit 0 of each side lies.
  struct Tables {
    const uint8_t* keys;
    const uint8_t* values;
  };
  static __device__ void make_tables(const Tables& tables) {
    if (threadIdx.x == 0) *reinterpret_cast<Tables*>(shared_memory()) = tables;
  }
  static __device__ const uint8_t* unit(const uint8_t* base, const uint8_t* entries, int first_row) {
    return base + kUnitBytes * reinterpret_cast<const int32_t*>(entries)[first_row / Base::kTileTokens];
  }
  static __device__ void stage_keys(uint32_t stage, const uint8_t* entries, int first_row, int n_rows) {
    const uint8_t* base = reinterpret_cast<const Tables*>(shared_memory())->keys;
    Base::stage_rows(stage, unit(base, entries, first_row), 0, n_rows);
  }
  static __device__ void stage_values(uint32_t stage, const uint8_t* entries, int first_row, int n_rows) {
    const uint8_t* base = reinterpret_cast<const Tables*>(shared_memory())->values;
    Base::stage_rows(stage, unit(base, entries, first_row), 0, n_rows);
  }
};

}  // namespace quire::cuda
