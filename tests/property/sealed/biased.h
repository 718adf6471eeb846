// Prompts whose keys have a bias that RoPE turns, and what the bias is at every position.
#pragma once

#include <cmath>
#include <memory>
#include <span>
#include <vector>

#include "property/cache/prompt.h"

namespace quire::test {

// R_p b in double precision: channels i and i + half are turned by the angle p * frequency[i].
inline std::vector<double> turned_bias(std::span<const float> bias, std::span<const double> frequencies,
                                       size_t position) {
  std::vector<double> out(bias.begin(), bias.end());
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const double angle = static_cast<double>(position) * frequencies[i];
    const double a = out[i];
    const double b = out[i + frequencies.size()];
    out[i] = a * std::cos(angle) - b * std::sin(angle);
    out[i + frequencies.size()] = a * std::sin(angle) + b * std::cos(angle);
  }
  return out;
}

inline std::vector<double> rope_frequencies(size_t rope_dims, double base) {
  std::vector<double> frequencies;
  for (size_t i = 0; i < rope_dims / 2; ++i) {
    frequencies.push_back(std::pow(base, -2.0 * static_cast<double>(i) / static_cast<double>(rope_dims)));
  }
  return frequencies;
}

// A prompt whose keys are R_p b plus what Prompt makes. Every third head has no bias.
struct BiasedPrompt : Prompt {
  std::vector<double> frequencies;
  std::vector<std::vector<float>> biases;  // of all heads, layer by layer; empty: none
  std::shared_ptr<const KeyBiases> key_biases;

  BiasedPrompt(Geometry geometry, size_t n, uint64_t seed, size_t rope_dims, double norm)
      : Prompt(std::move(geometry), n, seed), frequencies(rope_frequencies(rope_dims, 10000)) {
    Random random(seed + 1);
    const double scale = norm / std::sqrt(static_cast<double>(shape.head_dim));
    for (size_t layer = 0; layer < shape.n_layers; ++layer) {
      for (size_t head = 0; head < shape.n_kv_heads[layer]; ++head) {
        biases.emplace_back();
        if (biases.size() % 3 == 0) continue;
        biases.back() = random.normals(shape.head_dim, scale);
        add_to_keys(layer, head, biases.back());
      }
    }
    key_biases = make_key_biases();
  }

  size_t head_index(size_t layer, size_t head) const {
    size_t index = head;
    for (size_t before = 0; before < layer; ++before) index += shape.n_kv_heads[before];
    return index;
  }

  // Of one head at one position; empty: none.
  std::vector<double> bias_at(size_t layer, size_t head, size_t position) const {
    const std::vector<float>& bias = biases[head_index(layer, head)];
    return bias.empty() ? std::vector<double>() : turned_bias(bias, frequencies, position);
  }

 private:
  void add_to_keys(size_t layer, size_t head, const std::vector<float>& bias) {
    for (size_t t = 0; t < n_tokens; ++t) {
      const std::vector<double> b = turned_bias(bias, frequencies, t);
      float* key = k[layer].data() + t * kv_width(layer) + head * shape.head_dim;
      for (size_t d = 0; d < shape.head_dim; ++d) key[d] = static_cast<float>(key[d] + b[d]);
    }
  }

  std::shared_ptr<const KeyBiases> make_key_biases() const {
    const auto turns = std::make_shared<const RopeTurns>(frequencies);
    KeyBiases all;
    for (const std::vector<float>& bias : biases) {
      all.heads.emplace_back();
      if (!bias.empty()) all.heads.back().emplace(turns, bias);
    }
    return std::make_shared<const KeyBiases>(std::move(all));
  }
};

}  // namespace quire::test
