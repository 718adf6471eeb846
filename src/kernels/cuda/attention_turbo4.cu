#include "kernels/cuda/device/launch_turbo.cuh"

namespace quire::cuda {

void attend_turbo4(const DecodeAttention& attention, int value_bits, const TurboTables& tables,
                   Stream stream) {
  value_bits == 4 ? launch_turbo<4, 4>(attention, tables, stream)
                  : launch_turbo<4, 3>(attention, tables, stream);
}

}  // namespace quire::cuda
