// Numbers drawn on the device, for measuring.
#pragma once

#include <cstdint>

#include "format/row_format.h"
#include "kernels/cuda/attention.h"

namespace quire::gpu {

// Normal numbers times `size` in f16, bf16 or fp8; number i hangs on the seed and i alone.
void fill_normal(uint16_t* to, int64_t n, float size, uint64_t seed, Format format, cuda::Stream stream);
void fill_value(float* to, int64_t n, float value, cuda::Stream stream);

}  // namespace quire::gpu
