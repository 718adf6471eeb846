// Shapes of models that weights may be drawn for: host logic.
#pragma once

#include <string_view>

#include "model/config.h"

namespace quire::gpu {

struct RandomShape {
  const char* name;
  const char* architecture;
  int n_layers;
  int width;
  int ffn_width;
  int n_heads;
  int n_kv_heads;
  int head_dim;
  int vocabulary;
  bool tied;
  float epsilon;
  double rope_base;
};

// Throws Error, with the names there are, for another.
const RandomShape& random_shape(std::string_view name);
// Positions turn by the base alone, without scaling for long contexts; any length is allowed.
ModelConfig random_config(const RandomShape& shape);

}  // namespace quire::gpu
