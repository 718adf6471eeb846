// The shape of a model's KV cache.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "cache/recipe.h"

namespace quire {

// What a cache must know of the model.
struct Geometry {
  size_t n_layers = 0;
  size_t n_heads = 0;  // a multiple of every layer's n_kv_heads
  size_t head_dim = 0;
  std::vector<size_t> n_kv_heads;  // one per layer

  // Bytes that a token takes in the long run, all layers, keys and values.
  uint64_t token_bytes(const Recipe& recipe) const;
  // Bytes of the pages that n tokens take.
  uint64_t cache_bytes(const Recipe& recipe, size_t n_tokens) const;
};

}  // namespace quire
