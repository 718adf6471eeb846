#include "kernels/cuda/offloaded_rows.h"

#include <string>

#include "kernels/cuda/device/launch_sparse.cuh"
#include "kernels/cuda/device/record_source.cuh"

namespace quire::cuda {

namespace {

template <int kHeadDim, int kValueBits>
void launch(const RecordParams& params, Stream stream) {
  launch_sparse_kernel(sparse_attention<kHeadDim, 4, kValueBits, RecordSource<kHeadDim, 4, kValueBits>>,
                       params, stream);
}

}  // namespace

bool has_offloaded_kernel(int key_bits, int value_bits, int head_dim) {
  return key_bits == 4 && (value_bits == 3 || value_bits == 4) && (head_dim == 64 || head_dim == 128);
}

void attend_offloaded(const SparseAttention& attention, const OffloadedRows& rows, int key_bits,
                      int value_bits, const SparsePlan& plan, Stream stream) {
  if (!has_offloaded_kernel(key_bits, value_bits, attention.head_dim)) {
    throw Error("no CUDA kernel for rows outside with keys of " + std::to_string(key_bits) +
                " bits, values of " + std::to_string(value_bits) + " and heads of " +
                std::to_string(attention.head_dim));
  }
  RecordParams params{};
  params.a = attention;
  params.plan = plan;
  params.tables = sparse_tables(key_bits, value_bits, attention.head_dim);
  params.rows = rows;
  if (attention.head_dim == 64) {
    value_bits == 4 ? launch<64, 4>(params, stream) : launch<64, 3>(params, stream);
  } else {
    value_bits == 4 ? launch<128, 4>(params, stream) : launch<128, 3>(params, stream);
  }
}

}  // namespace quire::cuda
