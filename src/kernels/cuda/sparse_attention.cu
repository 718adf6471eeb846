#include "kernels/cuda/sparse_attention.h"

#include "kernels/cuda/device/early_start.cuh"
#include "kernels/cuda/device/launch_sparse.cuh"

#include "format/turbo.h"
#include "kernels/cuda/codebook_of.h"

namespace quire::cuda {

namespace {

template <int kBits>
void put_centroids(int head_dim, uint16_t* centroids) {
  const Codebook& book = codebook_of<Turbo<kBits>>(head_dim);
  for (int code = 0; code < 1 << kBits; ++code) centroids[code] = f32_to_f16(book.centroids[code]);
}

void put_centroids(int bits, int head_dim, uint16_t* centroids) {
  switch (bits) {
    case 2: return put_centroids<2>(head_dim, centroids);
    case 3: return put_centroids<3>(head_dim, centroids);
    default: return put_centroids<4>(head_dim, centroids);
  }
}

}  // namespace

SparseTables sparse_tables(int key_bits, int value_bits, int head_dim) {
  SparseTables tables{};
  put_centroids(key_bits, head_dim, tables.keys);
  put_centroids(value_bits, head_dim, tables.values);
  return tables;
}

namespace {

// Takes a multiprocessor, for as many clusters as there is room for.
__global__ void fill_multiprocessor() {}

int clusters_at_a_time(int n_blocks, int shared_bytes) {
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(n_blocks * 1024));
  config.blockDim = dim3(32 * kMostSparseWarps);
  config.dynamicSmemBytes = static_cast<size_t>(shared_bytes);
  cudaLaunchAttribute cluster{};
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim.x = static_cast<unsigned>(n_blocks);
  cluster.val.clusterDim.y = 1;
  cluster.val.clusterDim.z = 1;
  config.attrs = &cluster;
  config.numAttrs = 1;
  int n = 0;
  check(cudaOccupancyMaxActiveClusters(&n, fill_multiprocessor, &config), "asking for clusters");
  return n;
}

}  // namespace

SparseDevice sparse_device() {
  int device = 0;
  int major = 0;
  SparseDevice answer{};
  check(cudaGetDevice(&device), "asking for the device");
  check(cudaDeviceGetAttribute(&answer.shared_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device),
        "asking for its memory");
  check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device), "asking for its kind");
  answer.n_multiprocessors = block_count();
  answer.clusters[1] = answer.n_multiprocessors;
  // Code for older devices knows nothing of clusters, nor of inputs to wait for.
  if (major < 9 || !waits_for_inputs(reinterpret_cast<const void*>(fill_multiprocessor))) return answer;
  check(cudaFuncSetAttribute(fill_multiprocessor, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             answer.shared_bytes),
        "reserving shared memory");
  check(cudaFuncSetAttribute(fill_multiprocessor, cudaFuncAttributeNonPortableClusterSizeAllowed, 1),
        "asking for clusters");
  for (int n = 2; n <= kMostClusterBlocks; ++n)
    answer.clusters[n] = clusters_at_a_time(n, answer.shared_bytes);
  return answer;
}

void attend_sparse(const SparseAttention& attention, int key_bits, int value_bits, const SparsePlan& plan,
                   Stream stream) {
  const SparseParams params{attention, plan, sparse_tables(key_bits, value_bits, attention.head_dim)};
  switch (key_bits) {
    case 2: return launch_sparse2(params, stream);
    case 3: return launch_sparse3(params, stream);
    default: return launch_sparse4(params, value_bits, stream);
  }
}

}  // namespace quire::cuda
