// Where the sparse kernel finds the codes of a candidate whose page lies outside: in a record that is on the
// device, or is brought there before anything is read. Between the estimates and the scores the block
//
//   looks its candidates up, and marks the places of those found as wanted in this step
//   | takes places for the others | copies their records, all of them under way at a time
//
// Places are taken by compare-and-swap, so blocks of a pair need no order among them.
#pragma once

#include "kernels/cuda/device/place_table.cuh"
#include "kernels/cuda/device/sparse_block.cuh"
#include "kernels/cuda/offloaded_rows.h"

namespace quire::cuda {

struct RecordParams : SparseParams {
  OffloadedRows rows;
};

template <int kHeadDim, int kKeyBits, int kValueBits>
class RecordSource {
 public:
  using Params = RecordParams;

  // rows [n]: 64 * page of the block + token of its candidates; blocks before it have n_before. All threads
  // of all blocks of the cluster.
  __device__ RecordSource(const RecordParams& params, const SparseBlock& block, const uint32_t* rows, int n,
                          int n_before)
      : records_{params.rows.records.data + block.kv_head * params.rows.records.head_stride,
                 params.rows.records.page_stride},
        norms_{params.rows.value_norms.data + block.kv_head * params.rows.value_norms.head_stride,
               params.rows.value_norms.page_stride},
        resident_(params.rows.resident + (int64_t)block.pair * params.rows.n_sets * kWays * kRecordBytes) {
    const OffloadedRows& r = params.rows;
    const ResidentSet set = {r.words + (int64_t)block.pair * r.n_sets * kWays, r.n_sets, *r.step};
    const uint32_t first_row = 64 * (uint32_t)block.first_page;
    places_ = reinterpret_cast<uint32_t*>(r.step_room) +
              2 * (int64_t)block.pair * params.plan.most_candidates + n_before;
    uint32_t* fetches = places_ + params.plan.most_candidates;
    int& n_fetches = block.shared.n_kept;  // free until rows are kept
    if (threadIdx.x == 0) n_fetches = 0;
#pragma unroll 1
    for (int i = (int)threadIdx.x; i < n; i += (int)blockDim.x) places_[i] = set.find(first_row + rows[i]);
    cluster_wait();
    int n_in_place = 0;
#pragma unroll 1
    for (int i = (int)threadIdx.x; i < n; i += (int)blockDim.x) {
      if (places_[i] != kOutside) continue;
      places_[i] = set.take(first_row + rows[i]);
      if (places_[i] == kOutside) {
        ++n_in_place;
      } else {
        fetches[atomicAdd(&n_fetches, 1)] = (uint32_t)i;
      }
    }
    if (n_in_place > 0) atomicAdd(&r.counts->in_place, (unsigned long long)n_in_place);
    __syncthreads();
    fetch(block, rows, fetches, n_fetches);
    if (threadIdx.x == 0) {
      atomicAdd(&r.counts->asked, (unsigned long long)n);
      atomicAdd(&r.counts->fetched, (unsigned long long)n_fetches);
    }
    __syncthreads();
  }

  template <int kRowBytes>
  __device__ const uint8_t* key(const SparseBlock& block, uint32_t row, int candidate) const {
    return record(block, row, candidate);
  }
  template <int kRowBytes>
  __device__ const uint8_t* value(const SparseBlock& block, uint32_t row, int candidate) const {
    return record(block, row, candidate) + record_value_offset(kKeyBits, kHeadDim);
  }
  template <int kRowBytes>
  __device__ const uint16_t* value_norm(const SparseBlock& block, uint32_t row) const {
    return reinterpret_cast<const uint16_t*>(norms_.of(block, row)) + row % 64;
  }

 private:
  static constexpr int kRecordBytes = record_bytes(kKeyBits, kHeadDim);
  static constexpr int kUnits = kRecordBytes / 16;
  static constexpr int kLanes = kUnits <= 2 ? 2 : kUnits <= 4 ? 4 : kUnits <= 8 ? 8 : 16;  // of a record
  static constexpr int kAhead = 4;  // records of a thread on their way

  struct Pages {
    const uint8_t* data;
    int64_t page_stride;
    __device__ const uint8_t* of(const SparseBlock& block, uint32_t row) const {
      return data + block.numbers[row / 64] * page_stride;
    }
  };

  __device__ const uint8_t* outside(const SparseBlock& block, uint32_t row) const {
    return records_.of(block, row) + (int)(row % 64) * kRecordBytes;
  }
  __device__ const uint8_t* record(const SparseBlock& block, uint32_t row, int candidate) const {
    const uint32_t place = places_[candidate];
    return place == kOutside ? outside(block, row) : resident_ + (int64_t)place * kRecordBytes;
  }

  __device__ void fetch(const SparseBlock& block, const uint32_t* rows, const uint32_t* fetches, int n) {
    const int unit = (int)threadIdx.x % kLanes;
    const int step = (int)blockDim.x / kLanes;
#pragma unroll 1
    for (int first = (int)threadIdx.x / kLanes; first < n; first += kAhead * step) {
      uint4 units[kAhead];
      uint8_t* to[kAhead];
#pragma unroll
      for (int j = 0; j < kAhead; ++j) {
        const int at = first + j * step;
        to[j] = nullptr;
        if (at >= n || unit >= kUnits) continue;
        const uint32_t candidate = fetches[at];
        to[j] = resident_ + (int64_t)places_[candidate] * kRecordBytes + 16 * unit;
        units[j] = __ldcg(reinterpret_cast<const uint4*>(outside(block, rows[candidate])) + unit);
      }
#pragma unroll
      for (int j = 0; j < kAhead; ++j) {
        if (to[j] != nullptr) *reinterpret_cast<uint4*>(to[j]) = units[j];
      }
    }
  }

  Pages records_;
  Pages norms_;
  uint8_t* resident_;
  uint32_t* places_;
};

}  // namespace quire::cuda
