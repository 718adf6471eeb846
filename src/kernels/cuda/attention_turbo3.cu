#include "kernels/cuda/device/launch_turbo.cuh"

namespace quire::cuda {

void attend_turbo3(const DecodeAttention& attention, int value_bits, const TurboTables& tables,
                   Stream stream) {
  value_bits == 3 ? launch_turbo<3, 3>(attention, tables, stream)
                  : launch_turbo<3, 2>(attention, tables, stream);
}

}  // namespace quire::cuda
