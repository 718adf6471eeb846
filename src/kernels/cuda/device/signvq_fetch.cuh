// Rows that a block has listed, brought from memory of the host to where it reads them. The block
//
//   looks them up, and marks the places of those found as wanted in this step
//   | takes places for the others, or room of the step's own | copies these, all of them under way at a time
//
// Blocks of a pair list different rows and need no order among them: a place that one wants is never given to
// another's row in the step.
#pragma once

#include "kernels/cuda/device/place_table.cuh"
#include "kernels/cuda/device/signvq_step.cuh"
#include "kernels/cuda/offloaded_rows.h"

namespace quire::cuda {

struct OffloadedSignVqParams : SignVqParams {
  OffloadedRows outside;
};

// A listed row that is not on the device: at first where in the list it is, then where it goes.
struct RowFetch {
  uint32_t row;
  uint32_t to;
};

class ListedFetch {
 public:
  __device__ ListedFetch(const OffloadedSignVqParams& p, int pair)
      : rows_(p.outside),
        set_{p.outside.words + (int64_t)pair * p.outside.n_sets * kWays, p.outside.n_sets, *p.outside.step},
        pages_(p.a.page_table + (int64_t)(pair / p.a.n_kv_heads) * p.a.page_table_stride),
        record_bytes_(signvq_row_bytes(p.a.head_dim)),
        records_(p.outside.records.data + pair % p.a.n_kv_heads * p.outside.records.head_stride),
        resident_(p.outside.resident + (int64_t)pair * p.outside.n_sets * kWays * record_bytes_),
        room_(p.outside.step_room + pair * signvq_step_bytes(p.plan.most_rows, p.a.head_dim)) {}

  // What entries of the list count from.
  __device__ const uint8_t* base() const { return resident_; }

  // list [n]: numbers of rows, which become entries; the first of them is that of rank `rank` of the pair.
  // fetches: room for n; n_fetches, n_in_place: of the block. All threads, which have waited for the list.
  __device__ void bring(uint32_t* list, int n, int rank, RowFetch* fetches, int& n_fetches,
                        int& n_in_place) const {
    if (threadIdx.x == 0) n_fetches = n_in_place = 0;
    __syncthreads();
#pragma unroll 1
    for (int i = (int)threadIdx.x; i < n; i += (int)blockDim.x) {
      const uint32_t place = set_.find(list[i]);
      if (place == kOutside) {
        fetches[atomicAdd(&n_fetches, 1)] = {list[i], (uint32_t)i};
      } else {
        list[i] = entry_of(place);
      }
    }
    __syncthreads();
#pragma unroll 1
    for (int i = (int)threadIdx.x; i < n_fetches; i += (int)blockDim.x) {
      RowFetch& fetch = fetches[i];
      const uint32_t place = set_.take(fetch.row);
      const uint32_t at = fetch.to;
      if (place == kOutside) atomicAdd(&n_in_place, 1);
      fetch.to = place == kOutside ? room_entry(rank + (int)at) : entry_of(place);
      list[at] = fetch.to;
    }
    __syncthreads();
    copy(fetches, n_fetches);
    if (threadIdx.x == 0) {
      atomicAdd(&rows_.counts->asked, (unsigned long long)n);
      atomicAdd(&rows_.counts->fetched, (unsigned long long)(n_fetches - n_in_place));
      atomicAdd(&rows_.counts->in_place, (unsigned long long)n_in_place);
    }
    __syncthreads();
  }

 private:
  static constexpr int kLanes = 8;  // of a record, 16 bytes each
  static constexpr int kAhead = 4;  // records of a thread on their way

  __device__ uint32_t entry_of(uint32_t place) const {
    return place * (uint32_t)(record_bytes_ / kListedBytes);
  }
  __device__ uint32_t room_entry(int rank) const {
    return (uint32_t)((room_ + (int64_t)rank * record_bytes_ - resident_) / kListedBytes);
  }
  __device__ const uint4* outside(uint32_t row) const {
    return reinterpret_cast<const uint4*>(records_ + pages_[row / 64] * rows_.records.page_stride +
                                          (int64_t)(row % 64) * record_bytes_);
  }

  __device__ void copy(const RowFetch* fetches, int n) const {
    const int unit = (int)threadIdx.x % kLanes;
    const int step = (int)blockDim.x / kLanes;
    if (unit >= record_bytes_ / 16) return;
#pragma unroll 1
    for (int first = (int)threadIdx.x / kLanes; first < n; first += kAhead * step) {
      uint4 units[kAhead];
#pragma unroll
      for (int j = 0; j < kAhead; ++j) {
        const int at = first + j * step;
        if (at < n) units[j] = __ldcg(outside(fetches[at].row) + unit);
      }
#pragma unroll
      for (int j = 0; j < kAhead; ++j) {
        const int at = first + j * step;
        if (at < n) {
          auto* to = const_cast<uint8_t*>(resident_) + (uint64_t)fetches[at].to * kListedBytes;
          reinterpret_cast<uint4*>(to)[unit] = units[j];
        }
      }
    }
  }

  const OffloadedRows& rows_;
  ResidentSet set_;
  const int32_t* pages_;
  int record_bytes_;
  const uint8_t* records_;
  const uint8_t* resident_;
  const uint8_t* room_;
};

}  // namespace quire::cuda
