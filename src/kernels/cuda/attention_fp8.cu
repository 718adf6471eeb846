#include "kernels/cuda/attention_fp8.h"

#include "kernels/cuda/device/fp8_rows.cuh"
#include "kernels/cuda/device/launch_streamed.cuh"

namespace quire::cuda {

void attend_fp8(const DecodeAttention& attention, Stream stream) {
  visit_head_dim(attention.head_dim, [&](auto head_dim) {
    using Streamed = StreamedFp8Rows<head_dim()>;
    if (can_stream<Streamed>()) return launch_streamed<Streamed>(attention, stream);
    launch_attention<Fp8Rows<head_dim()>>(attention, {}, stream);
  });
}

}  // namespace quire::cuda
