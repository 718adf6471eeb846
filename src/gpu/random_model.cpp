#include "gpu/random_model.h"

#include <charconv>
#include <cmath>
#include <string>

#include "base/error.h"
#include "gpu/device_model.h"

namespace quire::gpu {

namespace {

// As config.json of each model has it.
constexpr RandomShape kShapes[] = {
    {"llama-3.1-8b", "llama", 32, 4096, 14336, 32, 8, 128, 128256, false, 1e-5f, 500000},
    {"llama-3.2-1b", "llama", 16, 2048, 8192, 32, 8, 64, 128256, true, 1e-5f, 500000},
    {"qwen2.5-7b", "qwen2", 28, 3584, 18944, 28, 4, 128, 152064, false, 1e-6f, 1000000},
};

constexpr size_t kMostTokens = size_t{1} << 24;

}  // namespace

std::string random_shape_names() {
  std::string names;
  for (const RandomShape& shape : kShapes) names += (names.empty() ? "" : ", ") + std::string(shape.name);
  return names;
}

const RandomShape& random_shape(std::string_view name) {
  for (const RandomShape& shape : kShapes) {
    if (name == shape.name) return shape;
  }
  throw Error("there is no shape '" + std::string(name.substr(0, 80)) + "' for random weights; there are " +
              random_shape_names());
}

ModelConfig random_config(const RandomShape& shape) {
  ModelConfig config;
  config.family = find_family(shape.architecture);
  config.architecture = shape.architecture;
  config.name = std::string(shape.name) + ", random weights";
  config.n_layers = static_cast<size_t>(shape.n_layers);
  config.width = static_cast<size_t>(shape.width);
  config.ffn_width = static_cast<size_t>(shape.ffn_width);
  config.n_heads = static_cast<size_t>(shape.n_heads);
  config.n_kv_heads = static_cast<size_t>(shape.n_kv_heads);
  config.head_dim = static_cast<size_t>(shape.head_dim);
  config.vocabulary = static_cast<size_t>(shape.vocabulary);
  config.norm_epsilon = shape.epsilon;
  config.trained_tokens = config.context_tokens = kMostTokens;
  config.query_scale = 1.0f / std::sqrt(static_cast<float>(shape.head_dim));
  config.rope_dims = config.head_dim;
  config.rope = make_rope({.n_dims = config.head_dim, .base = shape.rope_base});
  config.rope_text = "no scaling";
  return config;
}

int device_number(std::string_view text) {
  if (text == "cpu") return -1;
  if (text == "cuda") return 0;
  constexpr std::string_view kPrefix = "cuda:";
  int number = -1;
  if (text.starts_with(kPrefix)) {
    const char* end = text.data() + text.size();
    const auto [stop, code] = std::from_chars(text.data() + kPrefix.size(), end, number);
    if (code == std::errc() && stop == end && number >= 0) return number;
  }
  throw Error("--device must be cpu, cuda or cuda:N, not '" + std::string(text.substr(0, 80)) + "'");
}

}  // namespace quire::gpu
