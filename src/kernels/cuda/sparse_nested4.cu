#include "kernels/cuda/device/launch_sparse.cuh"

namespace quire::cuda {

void launch_sparse4(const SparseParams& params, int value_bits, Stream stream) {
  value_bits == 4 ? launch_sparse<4, 4>(params, stream) : launch_sparse<4, 3>(params, stream);
}

}  // namespace quire::cuda
