#include "model/key_bias.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "model/tensors.h"

namespace quire {

namespace {

// A pair of channels that RoPE turns, or a channel that it leaves; their bias is taken off whole or not.
struct Part {
  std::vector<size_t> channels;
  double square;
};

std::vector<Part> parts_of(std::span<const float> bias, size_t rope_dims) {
  const auto square = [&](size_t i) { return static_cast<double>(bias[i]) * static_cast<double>(bias[i]); };
  std::vector<Part> parts;
  const size_t half = rope_dims / 2;
  for (size_t i = 0; i < half; ++i) parts.push_back({{i, i + half}, square(i) + square(i + half)});
  for (size_t i = rope_dims; i < bias.size(); ++i) parts.push_back({{i}, square(i)});
  return parts;
}

// The bias without its least parts.
std::vector<float> without_least(std::span<const float> bias, double key_norm, size_t rope_dims) {
  std::vector<Part> parts = parts_of(bias, rope_dims);
  std::stable_sort(parts.begin(), parts.end(),
                   [](const Part& a, const Part& b) { return a.square < b.square; });
  std::vector<float> kept(bias.begin(), bias.end());
  double left = 0;
  for (const Part& part : parts) {
    left += part.square;
    if (left > kKeyBiasLeft * key_norm * kKeyBiasLeft * key_norm) break;
    for (const size_t channel : part.channels) kept[channel] = 0;
  }
  return kept;
}

}  // namespace

double expected_key_norm(std::span<const float> rows, std::span<const float> norm_weight) {
  double squares = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    const double part =
        static_cast<double>(rows[i]) * static_cast<double>(norm_weight[i % norm_weight.size()]);
    squares += part * part;
  }
  return std::sqrt(squares);
}

KeyBiasCheck check_key_bias(std::span<const float> bias, double key_norm, size_t rope_dims) {
  double squares = 0;
  for (const float b : bias) squares += static_cast<double>(b) * static_cast<double>(b);
  KeyBiasCheck check{std::sqrt(squares), key_norm};
  if (check.risk() >= kLeastKeyBiasRisk) check.taken_off = without_least(bias, key_norm, rope_dims);
  return check;
}

namespace {

// Rows first..first + n - 1 of a matrix.
std::vector<float> read_rows(const TensorInfo& matrix, size_t first, size_t n) {
  std::vector<float> rows(n * matrix.row_length());
  dequantize_row(matrix.type, matrix.data + first * row_bytes(matrix.type, matrix.row_length()), rows.data(),
                 rows.size());
  return rows;
}

void multiply_first(std::span<float> values, size_t n, double factor) {
  for (float& value : values.first(n)) value = static_cast<float>(value * factor);
}

void check_layer(const GgufFile& file, const ModelConfig& config, const std::string& prefix,
                 const TensorInfo& bias_tensor, KeyBiasCheck* checks) {
  const size_t dim = config.head_dim;
  std::vector<float> bias =
      read_ordered(file, bias_tensor, half_split_order(config.n_kv_heads, dim, config.neighbouring_dims()));
  const std::vector<float> norm = read_vector(file, file.tensor(prefix + "attn_norm.weight"), config.width);
  const TensorInfo& keys = file.tensor(prefix + "attn_k.weight");
  check_shape(file, keys, config.n_kv_heads * dim, config.width);
  for (size_t head = 0; head < config.n_kv_heads; ++head) {
    std::vector<float> rows = read_rows(keys, head * dim, dim);
    const std::span<float> own = std::span(bias).subspan(head * dim, dim);
    // Keys as RoPE leaves them; its channels are the first of a head in either order.
    multiply_first(own, config.rope_dims, config.rope.attention_factor);
    multiply_first(rows, config.rope_dims * config.width, config.rope.attention_factor);
    checks[head] = check_key_bias(own, expected_key_norm(rows, norm), config.rope_dims);
  }
}

}  // namespace

std::vector<KeyBiasCheck> check_key_biases(const GgufFile& file, const ModelConfig& config) {
  std::vector<KeyBiasCheck> checks;
  for (size_t layer = 0; layer < config.n_layers; ++layer) {
    const std::string prefix = "blk." + std::to_string(layer) + ".";
    const TensorInfo* bias = file.find_tensor(prefix + "attn_k.bias");
    if (bias == nullptr) continue;
    checks.resize(config.n_layers * config.n_kv_heads);
    check_layer(file, config, prefix, *bias, checks.data() + layer * config.n_kv_heads);
  }
  return checks;
}

std::vector<double> layer_risks(std::span<const KeyBiasCheck> checks, size_t n_layers) {
  std::vector<double> risks(checks.empty() ? 0 : n_layers);
  for (size_t i = 0; i < checks.size(); ++i) {
    double& risk = risks[i / (checks.size() / n_layers)];
    risk = std::max(risk, checks[i].risk());
  }
  return risks;
}

std::shared_ptr<const KeyBiases> key_biases(std::span<const KeyBiasCheck> checks,
                                            std::vector<double> frequencies) {
  if (std::none_of(checks.begin(), checks.end(), [](const KeyBiasCheck& check) { return check.framed(); })) {
    return nullptr;
  }
  const auto turns = std::make_shared<const RopeTurns>(std::move(frequencies));
  KeyBiases biases;
  for (const KeyBiasCheck& check : checks) {
    std::optional<KeyBias> bias;
    if (check.framed()) bias.emplace(turns, check.taken_off);
    biases.heads.push_back(std::move(bias));
  }
  return std::make_shared<const KeyBiases>(std::move(biases));
}

}  // namespace quire
