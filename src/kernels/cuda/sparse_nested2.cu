#include "kernels/cuda/device/launch_sparse.cuh"

namespace quire::cuda {

void launch_sparse2(const SparseParams& params, Stream stream) { launch_sparse<2, 2>(params, stream); }

}  // namespace quire::cuda
