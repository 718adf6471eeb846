// Numbers of exact rows.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "base/half.h"

namespace quire::cuda {

__device__ __forceinline__ float exact_number(uint16_t x, Format format) {
  return format == Format::kF16 ? __half2float(__ushort_as_half(x)) : bf16_to_f32(x);
}

// Rounded to nearest even.
__device__ __forceinline__ uint16_t rounded_number(float x, Format format) {
  return format == Format::kF16 ? __half_as_ushort(__float2half_rn(x))
                                : __bfloat16_as_ushort(__float2bfloat16_rn(x));
}

}  // namespace quire::cuda
