// The block types in which a GGUF file stores a tensor, their sizes, and the scalar truth of what their
// values are. A row is a whole number of blocks; rows follow each other without padding.
#pragma once

#include <cstdint>
#include <optional>

namespace quire {

// Numbered as ggml numbers them in the file; types that are not here are refused when a file is opened.
enum class TensorType : uint32_t {
  F32 = 0,
  F16 = 1,
  Q4_0 = 2,
  Q4_1 = 3,
  Q5_0 = 6,
  Q5_1 = 7,
  Q8_0 = 8,
  Q4_K = 12,
  Q5_K = 13,
  Q6_K = 14,
  BF16 = 30,
};

// "Q4_1"
const char* tensor_type_name(TensorType type);

// The type of that number in a GGUF file; nullopt when we cannot decode it.
std::optional<TensorType> tensor_type_from_number(uint32_t number);

// The name ggml gives to a type number, decodable here or not (10 is "Q2_K"); nullptr when unknown.
const char* ggml_type_name(uint32_t number);

// "F32, F16, Q4_0, ...": the decodable types, for messages.
const char* supported_tensor_types();

// Values in one block: 1 for the plain types, 32, or 256 for the _K types.
uint32_t block_values(TensorType type);

uint32_t block_bytes(TensorType type);

// Bytes of a row; n_values must be a multiple of block_values(type), and the result must fit (GgufFile
// has checked both for the rows of its tensors).
uint64_t row_bytes(TensorType type, uint64_t n_values);

// Decodes n_values values (a multiple of block_values) with the f32 arithmetic of ggml's reference and of
// the `gguf` Python package, bit for bit (a NaN's payload apart). `blocks` needs no alignment.
void dequantize_row(TensorType type, const void* blocks, float* out, uint64_t n_values);

}  // namespace quire
