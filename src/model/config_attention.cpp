// Heads, scales, soft caps and windows of a model.
#include <cmath>
#include <string>
#include <variant>

#include "model/config_parts.h"

namespace quire {

namespace {

void read_heads(ModelKeys& keys, ModelConfig& config) {
  config.n_heads = keys.count("attention.head_count", 4096);
  config.n_kv_heads = keys.count_or("attention.head_count_kv", config.n_heads, 4096);
  if (config.n_heads % config.n_kv_heads != 0) {
    keys.refuse(std::to_string(config.n_heads) + " query heads cannot share " +
                std::to_string(config.n_kv_heads) + " KV heads evenly");
  }
  if (config.width % config.n_heads != 0 && !keys.has("attention.key_length")) {
    keys.refuse("width " + std::to_string(config.width) + " does not divide into " +
                std::to_string(config.n_heads) + " heads and there is no " +
                keys.full("attention.key_length"));
  }
  config.head_dim = keys.count_or("attention.key_length", config.width / config.n_heads, 512);
  if (config.head_dim == 0 || config.head_dim > 512) {
    keys.refuse("a head size of " + std::to_string(config.head_dim) + " is outside 1 to 512");
  }
  const size_t value_dim = keys.count_or("attention.value_length", config.head_dim, 512);
  if (value_dim != config.head_dim) {
    keys.refuse("keys of " + std::to_string(config.head_dim) + " and values of " + std::to_string(value_dim) +
                " dims in one head are not supported");
  }
}

// Queries are divided by the root of their head's size, or of what takes its place in a larger model.
double default_query_scale(const ModelConfig& config) {
  const bool wide = config.family->wide_query_layers == config.n_layers;
  return 1 / std::sqrt(static_cast<double>(wide ? config.width / config.n_heads : config.head_dim));
}

// Whether each layer has a window: by an array of one flag a layer, or all but each n-th.
std::vector<bool> windowed_layers(ModelKeys& keys, const ModelConfig& config) {
  const char* name = "attention.sliding_window_pattern";
  const MetadataValue* value = keys.find(name);
  const auto* array = value == nullptr ? nullptr : std::get_if<MetadataArray>(value);
  std::vector<bool> windowed(config.n_layers);
  if (array == nullptr) {
    const size_t period =
        value == nullptr ? config.family->window_period : keys.file().get_uint(keys.full(name));
    for (size_t i = 0; i < config.n_layers; ++i) windowed[i] = period == 0 || i % period + 1 < period;
    return windowed;
  }
  if (array->n_values != config.n_layers) {
    keys.refuse(keys.full(name) + " has " + std::to_string(array->n_values) + " entries for " +
                std::to_string(config.n_layers) + " layers");
  }
  if (array->element_type == MetadataType::Bool) {
    for (size_t i = 0; i < config.n_layers; ++i) windowed[i] = array->data[i] != std::byte{0};
  } else {
    const std::vector<int64_t> flags = keys.file().get_int_array(keys.full(name));
    for (size_t i = 0; i < config.n_layers; ++i) windowed[i] = flags[i] != 0;
  }
  return windowed;
}

void read_windows(ModelKeys& keys, ModelConfig& config) {
  const char* name = "attention.sliding_window";
  const uint64_t window =
      keys.has(name) ? keys.file().get_uint(keys.full(name)) : config.family->window_tokens;
  const std::vector<bool> windowed = windowed_layers(keys, config);
  if (window == 0) return;
  for (size_t i = 0; i < config.n_layers; ++i) config.window_tokens.push_back(windowed[i] ? window : 0);
}

}  // namespace

void read_attention(ModelKeys& keys, ModelConfig& config) {
  read_heads(keys, config);
  const double scale = keys.positive_or_zero("attention.scale", 0);
  config.query_scale = static_cast<float>(scale == 0 ? default_query_scale(config) : scale);
  config.score_softcap =
      static_cast<float>(keys.positive_or_zero("attn_logit_softcapping", config.family->score_softcap));
  read_windows(keys, config);
}

}  // namespace quire
