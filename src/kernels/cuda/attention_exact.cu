#include "kernels/cuda/attention_fp8.h"
#include "kernels/cuda/device/exact_rows.cuh"
#include "kernels/cuda/device/launch_streamed.cuh"

namespace quire::cuda {

namespace {

template <class Number, int kHeadDim>
void attend_rows(const DecodeAttention& attention, Stream stream) {
  using Streamed = StreamedRows<Number, kHeadDim>;
  if (can_stream<Streamed>()) return launch_streamed<Streamed>(attention, stream);
  launch_attention<ExactRows<Number, kHeadDim>>(attention, {}, stream);
}

}  // namespace

void attend_exact(const DecodeAttention& attention, Format format, Stream stream) {
  check_shape(attention);
  visit_head_dim(attention.head_dim, [&](auto head_dim) {
    switch (format) {
      case Format::kF16: return attend_rows<__half, head_dim()>(attention, stream);
      case Format::kBF16: return attend_rows<__nv_bfloat16, head_dim()>(attention, stream);
      case Format::kFP8: return attend_fp8(attention, stream);
      case Format::kF32: throw Error("the CUDA device keeps exact rows as f16, bf16 or fp8, not as f32");
    }
  });
}

}  // namespace quire::cuda
