#include "model/config.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "base/error.h"
#include "model/config_parts.h"

namespace quire {

namespace {

const ModelFamily& known_family(const ModelKeys& keys) {
  if (const ModelFamily* family = find_family(keys.architecture())) return *family;
  const std::string name(keys.architecture().substr(0, 40));
  keys.refuse("architecture '" + name + "' is not supported (" + family_names() + " are)");
}

// A count that the file cannot hold is refused before anything is sized by it.
size_t read_layers(ModelKeys& keys, const ModelFamily& family) {
  const size_t n_layers = keys.count("block_count", 512);
  const size_t n_tensors = keys.file().tensors().size();
  if (n_layers * family.tensors_per_layer() > n_tensors) {
    keys.refuse(keys.full("block_count") + " is " + std::to_string(n_layers) + ", but the file has only " +
                std::to_string(n_tensors) + " tensors");
  }
  return n_layers;
}

// Entries that say nothing about the answer, and those that are known to be too much.
void refuse_unsupported(ModelKeys& keys) {
  for (const char* name :
       {"vocab_size", "tensor_data_layout", "attention.layer_norm_epsilon", "rope.scaling.finetuned"}) {
    keys.find(name);
  }
  if (keys.has("expert_count") && keys.file().get_uint(keys.full("expert_count")) > 0) {
    keys.refuse("mixture-of-experts models are not supported");
  }
  keys.find("expert_used_count");
  if (keys.has("attention.causal") && !keys.file().get_bool(keys.full("attention.causal"))) {
    keys.refuse("attention to later tokens is not supported");
  }
  keys.refuse_rest();
}

}  // namespace

ModelConfig ModelConfig::read(const GgufFile& file, const RopeOverrides& overrides) {
  ModelKeys keys(file);
  ModelConfig config;
  config.family = &known_family(keys);
  config.architecture = config.family->architecture;
  config.name = std::string(file.get_string_or("general.name", ""));
  config.n_layers = read_layers(keys, *config.family);
  config.width = keys.count("embedding_length", 1 << 20);
  config.ffn_width = keys.count("feed_forward_length", 1 << 24);
  config.trained_tokens = keys.count("context_length", uint64_t{1} << 32);
  config.norm_epsilon = static_cast<float>(keys.positive("attention.layer_norm_rms_epsilon"));
  if (config.family->scales_embedding) {
    config.embedding_scale = std::sqrt(static_cast<float>(config.width));
  }
  config.logit_softcap =
      static_cast<float>(keys.positive_or_zero("final_logit_softcapping", config.family->logit_softcap));
  read_attention(keys, config);
  read_rope(keys, overrides, config);
  refuse_unsupported(keys);
  config.vocabulary = file.tensor("token_embd.weight").n_rows();
  if (config.vocabulary < 1 || config.vocabulary > (uint64_t{1} << 24)) {
    keys.refuse("token_embd.weight has " + std::to_string(config.vocabulary) + " rows");
  }
  return config;
}

Geometry ModelConfig::geometry() const {
  Geometry geometry{n_layers, n_heads, head_dim, std::vector<size_t>(n_layers, n_kv_heads)};
  geometry.score_softcap = score_softcap;
  const auto fills = [&](size_t window) { return window != 0 && window < context_tokens; };
  if (std::any_of(window_tokens.begin(), window_tokens.end(), fills)) {
    for (const size_t window : window_tokens) geometry.window_tokens.push_back(fills(window) ? window : 0);
  }
  return geometry;
}

}  // namespace quire
