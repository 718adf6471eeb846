// Launches of the sparse kernel, one file of kernels for every number of bits of the keys.
#pragma once

#include "kernels/cuda/device/launch_attention.cuh"
#include "kernels/cuda/device/sparse_kernel.cuh"

namespace quire::cuda {

template <class Params>
void launch_sparse_kernel(void (*kernel)(Params), const Params& params, Stream stream) {
  const SparsePlan& plan = params.plan;
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, plan.shared_bytes),
        "reserving shared memory");
  cudaLaunchConfig_t config{};
  config.gridDim =
      dim3(static_cast<unsigned>(params.a.n_sequences * params.a.n_kv_heads * plan.cluster_blocks));
  config.blockDim = dim3(static_cast<unsigned>(32 * plan.n_warps));
  config.dynamicSmemBytes = static_cast<size_t>(plan.shared_bytes);
  config.stream = stream;
  cudaLaunchAttribute cluster{};
  if (plan.cluster_blocks > 1) {
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1),
          "asking for clusters");
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim.x = static_cast<unsigned>(plan.cluster_blocks);
    cluster.val.clusterDim.y = 1;
    cluster.val.clusterDim.z = 1;
    config.attrs = &cluster;
    config.numAttrs = 1;
  }
  check(cudaLaunchKernelEx(&config, kernel, params), "launching sparse attention");
}

template <int kKeyBits, int kValueBits>
void launch_sparse(const SparseParams& params, Stream stream) {
  visit_head_dim(params.a.head_dim, [&](auto head_dim) {
    launch_sparse_kernel(sparse_attention<head_dim(), kKeyBits, kValueBits, PageSource>, params, stream);
  });
}

SparseTables sparse_tables(int key_bits, int value_bits, int head_dim);

// Each in its file; value_bits as in attend_sparse().
void launch_sparse4(const SparseParams& params, int value_bits, Stream stream);
void launch_sparse3(const SparseParams& params, Stream stream);
void launch_sparse2(const SparseParams& params, Stream stream);

}  // namespace quire::cuda
