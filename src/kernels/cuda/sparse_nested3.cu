#include "kernels/cuda/device/launch_sparse.cuh"

namespace quire::cuda {

void launch_sparse3(const SparseParams& params, Stream stream) { launch_sparse<3, 3>(params, stream); }

}  // namespace quire::cuda
