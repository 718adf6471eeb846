// The check of a model's weights for key biases that codes of few bits would not survive.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "cache/statistics.h"
#include "model/config.h"
#include "weights/gguf.h"

namespace quire {

// Of one layer and KV head.
struct KeyBiasCheck {
  double bias_norm = 0;
  double key_norm = 0;  // to be expected of its keys without the bias
  // What coded keys are freed of, [head_dim] in half-split order; empty: the head is coded as it is.
  std::vector<float> taken_off = {};

  // A code's mean squared error grows by 1 + risk^2.
  double risk() const { return bias_norm == 0 ? 0 : bias_norm / key_norm; }
  bool framed() const { return !taken_off.empty(); }
};

// A bias as long as the keys themselves doubles the squared error of their codes, which costs half a bit.
constexpr double kLeastKeyBiasRisk = 1;
// The pairs of channels that hold least of a bias stay in the keys, where they make these at most 3 % longer,
// and scores need not be given them back.
constexpr double kKeyBiasLeft = 0.25;  // of the keys' norm, together

// Norm to be expected of the keys W x of one KV head where x = norm_weight o u and the values of u are
// independent with a mean square of 1. rows: W, [head_dim][width]; norm_weight [width].
double expected_key_norm(std::span<const float> rows, std::span<const float> norm_weight);

// bias [head_dim] in half-split order; rope_dims: the rotated channels.
KeyBiasCheck check_key_bias(std::span<const float> bias, double key_norm, size_t rope_dims);

// Of all layers and KV heads, layer by layer; empty where no layer has a key bias. Throws Error.
std::vector<KeyBiasCheck> check_key_biases(const GgufFile& file, const ModelConfig& config);

// The largest risk of each layer's heads; empty where no layer has a key bias.
std::vector<double> layer_risks(std::span<const KeyBiasCheck> checks, size_t n_layers);

// What caches need of it; nullptr where no head is framed. frequencies: radians per position, [rope_dims /
// 2].
std::shared_ptr<const KeyBiases> key_biases(std::span<const KeyBiasCheck> checks,
                                            std::vector<double> frequencies);

}  // namespace quire
