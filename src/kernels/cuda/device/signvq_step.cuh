// What the two kernels of a signvq step share: parameters, the workspace, and who begins when.
#pragma once

#include "kernels/cuda/device/warp.cuh"
#include "kernels/cuda/signvq_attention.h"

namespace quire::cuda {

constexpr int kSignVqThreads = 256;
constexpr int kSignVqWarps = kSignVqThreads / 32;
constexpr int kSignVqBins = 256;
// Rows are listed by where they lie, in units that rows and pages are multiples of.
constexpr int kListedBytes = 32;
// Pages that a warp scans at a time: a step of 512 rows, of which a lane has 16.
constexpr int kStepPages = 8;
constexpr int kStepRows = 64 * kStepPages;
// Parts of a pair that are counted apart, at most.
constexpr int kMostParts = 64;

// What the scan leaves of a pair beside bytes and counts.
struct SignVqHeader {
  int least;   // a row's sum of table entries is its byte + least
  int factor;  // of sums, to estimates: index_estimate() of kernels/index.inl
};

struct SignVqParams {
  SignVqAttention a;
  SignVqPlan plan;

  __device__ uint8_t* workspace() const { return static_cast<uint8_t*>(a.workspace); }
  __device__ int* counters() const { return static_cast<int*>(a.workspace); }
  __device__ SignVqHeader* headers() const {
    return reinterpret_cast<SignVqHeader*>(workspace() + plan.headers_offset);
  }
  // Bytes of the rows that stay exact, [pair][kMostKeptRows].
  __device__ uint8_t* kept_bytes(int pair) const {
    return workspace() + plan.kept_offset + pair * kMostKeptRows;
  }
  __device__ int n_parts() const { return plan.scan_blocks * plan.block_parts; }
  // Rows that may be read, by byte: [pair][part][kSignVqBins].
  __device__ int* counts(int pair) const {
    return reinterpret_cast<int*>(workspace() + plan.counts_offset) + (int64_t)pair * n_parts() * kSignVqBins;
  }
  // 1 + sum - least of every row; 0: it is not to be chosen.
  __device__ uint8_t* bytes(int pair) const {
    return workspace() + plan.bytes_offset + (int64_t)pair * a.page_table_stride * 64;
  }
};

// Steps of a part of a pair: first .. last - 1.
struct StepRange {
  int first;
  int last;
};
__device__ __forceinline__ StepRange steps_of(int n_pages, int part, int n_parts) {
  const int64_t n = (n_pages + kStepPages - 1) / kStepPages;
  return {(int)(n * part / n_parts), (int)(n * (part + 1) / n_parts)};
}

void launch_signvq_scan(const SignVqParams& params, Stream stream);

}  // namespace quire::cuda
