#include "kernels/cuda/device/exact_rows.cuh"
#include "kernels/cuda/device/launch_attention.cuh"

namespace quire::cuda {

void attend_exact(const DecodeAttention& attention, Format format, Stream stream) {
  check_shape(attention);
  visit_head_dim(attention.head_dim, [&](auto head_dim) {
    switch (format) {
      case Format::kF16: return launch_attention<ExactRows<__half, head_dim()>>(attention, {}, stream);
      case Format::kBF16:
        return launch_attention<ExactRows<__nv_bfloat16, head_dim()>>(attention, {}, stream);
      case Format::kF32: throw Error("the CUDA device keeps exact rows as f16 or bf16, not as f32");
    }
  });
}

}  // namespace quire::cuda
