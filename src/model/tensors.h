// What the readers of a model's tensors share. Internal to the room.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "weights/gguf.h"

namespace quire {

// Divisors of RoPE's frequencies, [rope_dims / 2]: Llama 3.1's, and LongRoPE's for contexts beyond the
// original length and up to it.
inline constexpr const char* kRopeFactorsTensor = "rope_freqs.weight";
inline constexpr const char* kLongFactorsTensor = "rope_factors_long.weight";
inline constexpr const char* kShortFactorsTensor = "rope_factors_short.weight";

// Some files store the rows of a head so that rotated pairs are neighbours (2i, 2i + 1). We keep
// them half a rotation apart (i, i + rope_dims / 2): a rotation is then whole registers, and queries and keys
// are permuted alike, so scores are the same. Row r of the result is row order[r] of the file.
std::vector<uint32_t> half_split_order(size_t n_heads, size_t head_dim, size_t rope_dims);

// Throws Error unless the tensor is [n_rows][n_columns].
void check_shape(const GgufFile& file, const TensorInfo& tensor, size_t n_rows, size_t n_columns);

// A tensor of one row in f32. Throws Error.
std::vector<float> read_vector(const GgufFile& file, const TensorInfo& tensor, size_t n);

// The same, value i of the result being value order[i] of the file; all must be finite.
std::vector<float> read_ordered(const GgufFile& file, const TensorInfo& tensor,
                                std::span<const uint32_t> order);

}  // namespace quire
