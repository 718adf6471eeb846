// Encoding of weights into the block types of GGUF files, by the rules of ggml's reference: the blocks of
// Q4_0, Q4_1, Q5_0, Q5_1 and Q8_0 are equal byte for byte to those of the `gguf` Python package. Those of the
// _K types follow the same search for scales, but their bytes are compared with nothing.
#pragma once

#include <cstdint>

#include "weights/tensor_type.h"

namespace quire {

// Encodes n_values values, a multiple of block_values(type). False, with blocks of no use, when a value is
// not finite or too large for the type's f16 numbers; F32 and BF16 take everything.
bool quantize_row(TensorType type, const float* values, void* blocks, uint64_t n_values);

}  // namespace quire
