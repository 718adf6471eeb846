#include "kernels/cuda/device/launch_turbo.cuh"

namespace quire::cuda {

void attend_turbo2(const DecodeAttention& attention, const TurboTables& tables, Stream stream) {
  launch_turbo<2, 2>(attention, tables, stream);
}

}  // namespace quire::cuda
