#include "model/tensors.h"

#include <cmath>
#include <string>

#include "base/error.h"

namespace quire {

std::vector<uint32_t> half_split_order(size_t n_heads, size_t head_dim, size_t rope_dims) {
  std::vector<uint32_t> order(n_heads * head_dim);
  const size_t half = rope_dims / 2;
  for (size_t h = 0; h < n_heads; ++h) {
    for (size_t d = 0; d < head_dim; ++d) {
      const size_t source = d < half ? 2 * d : d < rope_dims ? 2 * (d - half) + 1 : d;
      order[h * head_dim + d] = static_cast<uint32_t>(h * head_dim + source);
    }
  }
  return order;
}

void check_shape(const GgufFile& file, const TensorInfo& tensor, size_t n_rows, size_t n_columns) {
  if (tensor.row_length() == n_columns && tensor.n_rows() == n_rows) return;
  throw Error(file.path() + ": tensor '" + tensor.name + "' is " + std::to_string(tensor.n_rows()) + " x " +
              std::to_string(tensor.row_length()) + ", expected " + std::to_string(n_rows) + " x " +
              std::to_string(n_columns));
}

std::vector<float> read_vector(const GgufFile& file, const TensorInfo& tensor, size_t n) {
  check_shape(file, tensor, 1, n);
  std::vector<float> values(n);
  dequantize_row(tensor.type, tensor.data, values.data(), n);
  return values;
}

std::vector<float> read_ordered(const GgufFile& file, const TensorInfo& tensor,
                                std::span<const uint32_t> order) {
  const std::vector<float> values = read_vector(file, tensor, order.size());
  std::vector<float> ordered;
  for (const uint32_t source : order) {
    const float value = values[source];
    if (!std::isfinite(value)) {
      throw Error(file.path() + ": tensor '" + tensor.name + "' holds " + std::to_string(value) +
                  ", not a finite number");
    }
    ordered.push_back(value);
  }
  return ordered;
}

}  // namespace quire
