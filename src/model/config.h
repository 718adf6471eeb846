// The numbers of a Llama-family model, read from a GGUF file and checked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "cache/cache.h"
#include "weights/gguf.h"

namespace quire {

struct ModelConfig {
  std::string architecture;  // "llama"
  std::string name;
  size_t n_layers = 0;
  size_t width = 0;  // values of the residual stream
  size_t ffn_width = 0;
  size_t n_heads = 0;
  size_t n_kv_heads = 0;
  size_t head_dim = 0;
  size_t rope_dims = 0;  // rotated dims of a head
  size_t vocabulary = 0;
  size_t context_tokens = 0;
  float norm_epsilon = 0;
  double rope_base = 10000;
  double rope_scale = 1;  // positions are divided by it (linear scaling)

  // Throws Error of one sentence: missing or absurd numbers, another architecture, or anything the
  // forward pass would ignore (it never does so silently).
  static ModelConfig read(const GgufFile& file);

  Geometry geometry() const;
};

}  // namespace quire
