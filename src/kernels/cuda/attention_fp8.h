// Part of attend_exact() (attention.h): its kernels of fp8 rows.
#pragma once

#include "kernels/cuda/attention.h"

namespace quire::cuda {

void attend_fp8(const DecodeAttention& attention, Stream stream);

}  // namespace quire::cuda
