#include "model/config.h"

#include <cmath>
#include <string>

#include "base/error.h"

namespace quire {

namespace {

[[noreturn]] void refuse(const GgufFile& file, const std::string& what) {
  throw Error(file.path() + ": " + what);
}

// A count that must lie in [1, most].
size_t count(const GgufFile& file, const std::string& key, uint64_t most) {
  const uint64_t value = file.get_uint(key);
  if (value < 1 || value > most) {
    refuse(file, key + " is " + std::to_string(value) + ", outside 1 to " + std::to_string(most));
  }
  return value;
}

size_t count_or(const GgufFile& file, const std::string& key, uint64_t otherwise, uint64_t most) {
  return file.find(key) == nullptr ? otherwise : count(file, key, most);
}

double positive(const GgufFile& file, const std::string& key, double value) {
  if (!(value > 0) || !std::isfinite(value))
    refuse(file, key + " is " + std::to_string(value) + ", not a positive number");
  return value;
}

void read_attention(const GgufFile& file, const std::string& prefix, ModelConfig& config) {
  config.n_heads = count(file, prefix + "attention.head_count", 4096);
  config.n_kv_heads = count_or(file, prefix + "attention.head_count_kv", config.n_heads, 4096);
  if (config.n_heads % config.n_kv_heads != 0) {
    refuse(file, std::to_string(config.n_heads) + " query heads cannot share " +
                     std::to_string(config.n_kv_heads) + " KV heads evenly");
  }
  if (config.width % config.n_heads != 0 && file.find(prefix + "attention.key_length") == nullptr) {
    refuse(file, "width " + std::to_string(config.width) + " does not divide into " +
                     std::to_string(config.n_heads) + " heads and there is no " + prefix +
                     "attention.key_length");
  }
  config.head_dim = count_or(file, prefix + "attention.key_length", config.width / config.n_heads, 512);
  if (config.head_dim == 0 || config.head_dim > 512) {
    refuse(file, "a head size of " + std::to_string(config.head_dim) + " is outside 1 to 512");
  }
  const size_t value_dim = count_or(file, prefix + "attention.value_length", config.head_dim, 512);
  if (value_dim != config.head_dim) {
    refuse(file, "keys of " + std::to_string(config.head_dim) + " and values of " +
                     std::to_string(value_dim) + " dims in one head are not supported");
  }
  config.norm_epsilon =
      static_cast<float>(positive(file, prefix + "attention.layer_norm_rms_epsilon",
                                  file.get_float(prefix + "attention.layer_norm_rms_epsilon")));
}

void read_rope(const GgufFile& file, const std::string& prefix, ModelConfig& config) {
  config.rope_dims = count_or(file, prefix + "rope.dimension_count", config.head_dim, config.head_dim);
  if (config.rope_dims % 2 != 0) refuse(file, prefix + "rope.dimension_count is odd");
  config.rope_base =
      positive(file, prefix + "rope.freq_base", file.get_float_or(prefix + "rope.freq_base", 10000.0));
  std::string factor = prefix + "rope.scaling.factor";
  if (file.find(factor) == nullptr && file.find(prefix + "rope.scale_linear") != nullptr) {
    factor = prefix + "rope.scale_linear";  // its name in older files
  }
  // Without a type a factor means linear scaling, as in llama.cpp.
  const char* otherwise = file.find(factor) != nullptr ? "linear" : "none";
  const std::string_view type = file.get_string_or(prefix + "rope.scaling.type", otherwise);
  if (type == "linear") {
    config.rope_scale = positive(file, factor, file.get_float(factor));
  } else if (type != "none") {
    refuse(file, "RoPE scaling of type '" + std::string(type) + "' is not supported (none and linear are)");
  }
}

// What the forward pass does not do must not be in the file.
void refuse_unsupported(const GgufFile& file, const std::string& prefix) {
  if (file.get_uint_or(prefix + "expert_count", 0) > 0)
    refuse(file, "mixture-of-experts models are not supported");
  if (file.get_uint_or(prefix + "attention.sliding_window", 0) > 0) {
    refuse(file, "sliding-window attention is not supported");
  }
  for (const char* key :
       {"attention.clamp_kqv", "attention.max_alibi_bias", "logit_scale", "embedding_scale", "residual_scale",
        "attention.scale", "attn_logit_softcapping", "final_logit_softcapping"}) {
    if (file.find(prefix + key) != nullptr && file.get_float(prefix + key) != 0.0) {
      refuse(file, prefix + key + " is not supported");
    }
  }
}

}  // namespace

ModelConfig ModelConfig::read(const GgufFile& file) {
  ModelConfig config;
  config.architecture = std::string(file.get_string("general.architecture"));
  if (config.architecture != "llama") {
    refuse(file, "architecture '" + config.architecture.substr(0, 40) + "' is not supported (llama is)");
  }
  config.name = std::string(file.get_string_or("general.name", ""));
  const std::string prefix = config.architecture + ".";
  // A layer has nine tensors, so a count that the file cannot hold is refused before anything is sized by it.
  config.n_layers = count(file, prefix + "block_count", 512);
  if (config.n_layers * 9 > file.tensors().size()) {
    refuse(file, prefix + "block_count is " + std::to_string(config.n_layers) + ", but the file has only " +
                     std::to_string(file.tensors().size()) + " tensors");
  }
  config.width = count(file, prefix + "embedding_length", 1 << 20);
  config.ffn_width = count(file, prefix + "feed_forward_length", 1 << 24);
  config.context_tokens = count(file, prefix + "context_length", uint64_t{1} << 32);
  read_attention(file, prefix, config);
  read_rope(file, prefix, config);
  refuse_unsupported(file, prefix);
  config.vocabulary = file.tensor("token_embd.weight").n_rows();
  if (config.vocabulary < 1 || config.vocabulary > (uint64_t{1} << 24)) {
    refuse(file, "token_embd.weight has " + std::to_string(config.vocabulary) + " rows");
  }
  return config;
}

Geometry ModelConfig::geometry() const {
  return {n_layers, n_heads, head_dim, std::vector<size_t>(n_layers, n_kv_heads)};
}

}  // namespace quire
