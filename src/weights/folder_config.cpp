#include "weights/folder_config.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <optional>
#include <span>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "weights/folder_rope.h"
#include "weights/json_text.h"

namespace quire {
namespace {

constexpr uint64_t kMostLayers = 512;
constexpr uint64_t kMostHeads = 4096;
constexpr uint64_t kMostWidth = uint64_t{1} << 24;

// What the model class of transformers takes where config.json is silent; that of Gemma 3 with a vision tower
// says only what is not as usual. 0: config.json must say it.
struct Defaults {
  const char* model_type;
  Family family;
  const char* architecture;
  bool tied;
  double norm_epsilon;
  uint64_t n_heads;
  uint64_t n_kv_heads;  // 0: as many as query heads
  uint64_t head_dim;    // 0: width / heads
  uint64_t vocabulary;
  uint64_t context_tokens;
};

constexpr Defaults kDefaults[] = {
    {"llama", Family::kLlama, "llama", false, 1e-6, 0, 0, 0, 0, 0},
    {"mistral", Family::kMistral, "llama", false, 1e-6, 0, 8, 0, 0, 0},
    {"qwen2", Family::kQwen2, "qwen2", false, 1e-6, 0, 32, 0, 0, 0},
    {"qwen3", Family::kQwen3, "qwen3", false, 1e-6, 0, 32, 128, 0, 0},
    {"phi3", Family::kPhi3, "phi3", false, 1e-5, 0, 0, 0, 0, 0},
    {"gemma2", Family::kGemma2, "gemma2", true, 1e-6, 8, 4, 256, 256000, 8192},
    {"gemma3_text", Family::kGemma3, "gemma3", true, 1e-6, 8, 4, 256, 262208, 131072},
};

const Defaults& find_defaults(const JsonReader& json) {
  const std::string type = json.text("model_type");
  for (const Defaults& defaults : kDefaults) {
    if (type == defaults.model_type) return defaults;
  }
  json.fail("model_type",
            "is " + shown_json(type) +
                "; supported are llama, mistral, qwen2, qwen3, phi3, gemma2, gemma3 and gemma3_text");
}

const Defaults& defaults_of(Family family) {
  return *std::find_if(std::begin(kDefaults), std::end(kDefaults),
                       [&](const Defaults& defaults) { return defaults.family == family; });
}

// Keys that change the result where they are there and neither null, false, 0, 1 (where that means "as
// usual") nor empty; of none of them anything is done.
enum class Usual { kNothing, kOne };

struct Refused {
  const char* key;
  Usual usual;
};

constexpr Refused kRefused[] = {
    {"quantization_config", Usual::kNothing},
    {"compression_config", Usual::kNothing},
    {"num_experts", Usual::kNothing},
    {"num_local_experts", Usual::kNothing},
    {"n_routed_experts", Usual::kNothing},
    {"is_encoder_decoder", Usual::kNothing},
    {"add_cross_attention", Usual::kNothing},
    {"use_bidirectional_attention", Usual::kNothing},
    {"mlp_bias", Usual::kNothing},
    {"lm_head_bias", Usual::kNothing},
    {"use_mrope", Usual::kNothing},
    {"rope_interleaved", Usual::kNothing},
    {"use_qk_norm", Usual::kNothing},
    {"qk_layernorm", Usual::kNothing},
    {"clip_qkv", Usual::kNothing},
    {"alibi", Usual::kNothing},
    {"parallel_attn", Usual::kNothing},
    {"use_parallel_residual", Usual::kNothing},
    {"no_rope_layers", Usual::kNothing},
    {"no_rope_layer_interval", Usual::kNothing},
    {"attention_chunk_size", Usual::kNothing},
    {"attn_temperature_tuning", Usual::kNothing},
    {"attention_sinks", Usual::kNothing},
    {"attn_output_gate", Usual::kNothing},
    {"block_configs", Usual::kNothing},
    {"q_lora_rank", Usual::kNothing},
    {"kv_lora_rank", Usual::kNothing},
    {"num_kv_shared_layers", Usual::kNothing},
    {"embedding_multiplier", Usual::kOne},
    {"attention_multiplier", Usual::kNothing},
    {"residual_multiplier", Usual::kOne},
    {"logits_scaling", Usual::kOne},
    {"lm_head_multiplier", Usual::kOne},
    {"logit_scale", Usual::kOne},
    {"scale_depth", Usual::kNothing},
    {"scale_emb", Usual::kOne},
};

// Keys that only Gemma knows.
constexpr Refused kGemmaOnly[] = {
    {"attn_logit_softcapping", Usual::kNothing},
    {"final_logit_softcapping", Usual::kNothing},
    {"query_pre_attn_scalar", Usual::kNothing},
};

bool is_usual(const nlohmann::json& value, Usual usual) {
  if (value.is_boolean()) return !value.get<bool>();
  if (value.is_number())
    return value.get<double>() == 0 || (usual == Usual::kOne && value.get<double>() == 1);
  return (value.is_object() || value.is_array()) && value.empty();
}

void refuse_unsupported(const JsonReader& json, std::span<const Refused> refused) {
  for (const auto& [key, usual] : refused) {
    const nlohmann::json* value = json.find(key);
    if (value != nullptr && !is_usual(*value, usual)) {
      json.fail(key, "is " + shown_json(*value) + ", which is not supported");
    }
  }
}

void check_activation(const JsonReader& json, const FolderConfig& config) {
  if (config.is_gemma()) {
    const char* key = "hidden_activation";
    const std::string name = json.text_or(key, "gelu_pytorch_tanh");
    if (name == "gelu_pytorch_tanh") return;
    json.fail(key, "is " + shown_json(name) + "; gelu_pytorch_tanh is supported here");
  }
  const std::string name = json.text_or("hidden_act", "silu");
  if (name != "silu" && name != "swish") {
    json.fail("hidden_act", "is " + shown_json(name) + "; silu is supported here");
  }
}

void read_sizes(const JsonReader& json, const Defaults& defaults, FolderConfig& config) {
  const auto count = [&](const char* key, uint64_t otherwise, uint64_t most) {
    return otherwise == 0 ? json.count(key, most) : json.count_or(key, otherwise, most);
  };
  config.n_layers = json.count("num_hidden_layers", kMostLayers);
  config.width = json.count("hidden_size", kMostWidth);
  config.ffn_width = json.count("intermediate_size", kMostWidth);
  config.n_heads = count("num_attention_heads", defaults.n_heads, kMostHeads);
  const char* kv_key = "num_key_value_heads";
  const bool as_many = defaults.n_kv_heads == 0 || json.says_null(kv_key);
  config.n_kv_heads = json.count_or(kv_key, as_many ? config.n_heads : defaults.n_kv_heads, kMostHeads);
  if (config.n_heads % config.n_kv_heads != 0) {
    json.fail("num_attention_heads", "is " + std::to_string(config.n_heads) + ", which " +
                                         std::to_string(config.n_kv_heads) + " KV heads cannot share evenly");
  }
  if (!json.has("head_dim") && defaults.head_dim == 0 && config.width % config.n_heads != 0) {
    json.fail("hidden_size", "is " + std::to_string(config.width) + ", which does not divide into " +
                                 std::to_string(config.n_heads) + " heads, and there is no head_dim");
  }
  const uint64_t usual_dim = defaults.head_dim == 0 ? config.width / config.n_heads : defaults.head_dim;
  config.head_dim = json.count_or("head_dim", std::max<uint64_t>(usual_dim, 1), 4096);
  config.vocabulary = count("vocab_size", defaults.vocabulary, kMostWidth);
  config.context_tokens = count("max_position_embeddings", defaults.context_tokens, kMostFolderTokens);
  config.norm_epsilon = json.positive_or("rms_norm_eps", defaults.norm_epsilon);
}

void read_biases(const JsonReader& json, FolderConfig& config) {
  const char* key = "attention_bias";
  const bool biased = json.flag_or(key, false);
  if (biased && (config.family == Family::kMistral || config.family == Family::kPhi3)) {
    json.fail(key, "is true, which is not supported here");
  }
  // Qwen 2 has them always, and none behind the values.
  config.qkv_bias = biased || config.family == Family::kQwen2;
  config.output_bias = biased && config.family != Family::kQwen2;
}

// Whether a layer has a window where layer_types does not say it.
std::vector<bool> usual_windows(const JsonReader& json, const FolderConfig& config) {
  std::vector<bool> windowed(config.n_layers, false);
  uint64_t period = 0;  // every so many layers, the last is full
  uint64_t first = 0;
  if (config.family == Family::kGemma2) period = 2;
  if (config.family == Family::kGemma3) {
    const char* key =
        json.has("sliding_window_pattern") ? "sliding_window_pattern" : "_sliding_window_pattern";
    period = json.count_or(key, 6, kMostLayers);
  }
  if (config.family == Family::kQwen2 || config.family == Family::kQwen3) {
    const nlohmann::json* value = json.find("max_window_layers");
    const bool from_start = value != nullptr && value->is_number() && value->get<double>() == 0;
    first = from_start ? 0 : json.count_or("max_window_layers", 28, kMostFolderTokens);
  }
  for (uint64_t i = first; i < config.n_layers; ++i) windowed[i] = period == 0 || (i + 1) % period != 0;
  return windowed;
}

std::vector<bool> said_windows(const JsonReader& json, uint64_t n_layers) {
  const char* key = "layer_types";
  std::vector<bool> windowed;
  for (const std::string& type : json.texts(key)) {
    if (type != "full_attention" && type != "sliding_attention") {
      json.fail(key, "holds " + shown_json(type) + "; full_attention and sliding_attention are supported");
    }
    windowed.push_back(type == "sliding_attention");
  }
  if (windowed.size() != n_layers) {
    json.fail(key, "has " + std::to_string(windowed.size()) + " entries for " + std::to_string(n_layers) +
                       " layers");
  }
  return windowed;
}

// Those of a family that has windows when its configuration gives their size.
bool may_have_windows(const JsonReader& json, const FolderConfig& config) {
  switch (config.family) {
    case Family::kLlama:
      if (json.has("sliding_window")) json.fail("sliding_window", "is not known to models of the type llama");
      return false;
    case Family::kQwen2:
    case Family::kQwen3: return json.flag_or("use_sliding_window", false);
    default: return true;
  }
}

void read_windows(const JsonReader& json, FolderConfig& config) {
  const char* key = "sliding_window";
  const bool is_gemma = config.is_gemma();
  config.windowed.assign(config.n_layers, false);
  uint64_t window = 0;
  if (may_have_windows(json, config)) {
    // Of a size that is not said, and no null: all have 4,096 but Phi-3, which then has no window.
    const bool unsaid = config.family != Family::kPhi3 && !json.says_null(key);
    window = json.has(key) ? json.count(key, kMostFolderTokens) : unsaid ? 4096 : 0;
    if (window > 0) config.windowed = usual_windows(json, config);
  }
  if (json.has("layer_types")) {
    const std::vector<bool> said = said_windows(json, config.n_layers);
    const bool may_differ = is_gemma || config.family == Family::kQwen2 || config.family == Family::kQwen3;
    if (!may_differ && said != config.windowed) {
      json.fail("layer_types", "gives other layers a window than models of this type have");
    }
    config.windowed = said;
  }
  const bool any = std::find(config.windowed.begin(), config.windowed.end(), true) != config.windowed.end();
  if (any && window == 0) json.fail(key, "is missing, but layer_types has sliding_attention");
  config.window_tokens = any ? window : 0;
}

void read_gemma(const JsonReader& json, FolderConfig& config) {
  config.attention_scale = 1 / std::sqrt(json.positive_or("query_pre_attn_scalar", 256));
  // Gemma 2 has them where nothing is said; a null says that there is none.
  const auto softcap = [&](const char* key, double otherwise) {
    return json.says_null(key) ? 0 : json.has(key) ? json.positive(key) : otherwise;
  };
  const bool is_second = config.family == Family::kGemma2;
  config.score_softcap = softcap("attn_logit_softcapping", is_second ? 50 : 0);
  config.logit_softcap = softcap("final_logit_softcapping", is_second ? 30 : 0);
}

}  // namespace

const char* FolderConfig::architecture() const { return defaults_of(family).architecture; }

FolderConfig read_folder_config(std::string_view text, const std::string& path) {
  const nlohmann::json parsed = parse_json_object(text, path);
  const JsonReader whole(parsed, path);
  FolderConfig config;
  std::optional<JsonReader> inner;
  if (whole.text("model_type") == "gemma3") {
    config.has_vision = true;
    inner = whole.object("text_config");
  }
  const JsonReader& json = inner ? *inner : whole;
  const Defaults& defaults =
      inner && !json.has("model_type") ? defaults_of(Family::kGemma3) : find_defaults(json);
  if (inner && defaults.family != Family::kGemma3) json.fail("model_type", "is not gemma3_text");
  config.family = defaults.family;
  refuse_unsupported(whole, kRefused);
  refuse_unsupported(json, kRefused);
  if (!config.is_gemma()) refuse_unsupported(json, kGemmaOnly);
  check_activation(json, config);
  read_sizes(json, defaults, config);
  config.tied = whole.flag_or("tie_word_embeddings", json.flag_or("tie_word_embeddings", defaults.tied));
  read_biases(json, config);
  read_windows(json, config);
  if (config.is_gemma()) read_gemma(json, config);
  config.rope = read_folder_rope(json, config);
  return config;
}

namespace {

bool is_periodic(const std::vector<bool>& windowed, uint64_t period) {
  for (uint64_t i = 0; i < windowed.size(); ++i) {
    if (windowed[i] != ((i + 1) % period != 0)) return false;
  }
  return true;
}

// One number where every so many layers the last is full, as llama.cpp has it; else one bool a layer. Nothing
// where the architecture has that number anyway. Without a key Gemma has windows, so that none has to be
// said.
void add_windows(const FolderConfig& config, const std::string& prefix, MetadataBuilder& metadata) {
  if (config.window_tokens == 0 && !config.is_gemma()) return;
  metadata.add(prefix + "attention.sliding_window", static_cast<uint32_t>(config.window_tokens));
  if (config.window_tokens == 0) return;
  const auto first_full = std::find(config.windowed.begin(), config.windowed.end(), false);
  const auto period = static_cast<uint64_t>(first_full - config.windowed.begin()) + 1;
  const uint64_t usual = config.family == Family::kGemma2 ? 2 : 6;
  if (config.is_gemma() && is_periodic(config.windowed, usual)) return;
  const std::string key = prefix + "attention.sliding_window_pattern";
  if (config.is_gemma() && is_periodic(config.windowed, period)) {
    metadata.add(key, static_cast<uint32_t>(period));
  } else {
    metadata.add_bools(key, config.windowed);
  }
}

void add_rope(const FolderConfig& config, const std::string& prefix, MetadataBuilder& metadata) {
  const FolderRope& rope = config.rope;
  const auto add = [&](const char* key, double value) {
    metadata.add(prefix + "rope." + key, static_cast<float>(value));
  };
  metadata.add(prefix + "rope.dimension_count", static_cast<uint32_t>(rope.n_dims));
  add("freq_base", rope.base);
  if (rope.local_base > 0) add("freq_base_swa", rope.local_base);
  if (rope.scaling == "none") return;
  metadata.add_text(prefix + "rope.scaling.type", rope.scaling);
  if (rope.scaling != "longrope") add("scaling.factor", rope.factor);
  if (rope.original_context > 0) {
    metadata.add(prefix + "rope.scaling.original_context_length",
                 static_cast<uint32_t>(rope.original_context));
  }
  if (rope.scaling == "longrope" || rope.attention_factor != 1)
    add("scaling.attn_factor", rope.attention_factor);
  if (rope.beta_fast > 0) add("scaling.yarn_beta_fast", rope.beta_fast);
  if (rope.beta_slow > 0) add("scaling.yarn_beta_slow", rope.beta_slow);
}

}  // namespace

void add_config_metadata(const FolderConfig& config, MetadataBuilder& metadata) {
  metadata.add_text("general.architecture", config.architecture());
  const std::string prefix = std::string(config.architecture()) + ".";
  const auto add = [&](const char* key, uint64_t value) {
    metadata.add(prefix + key, static_cast<uint32_t>(value));
  };
  add("block_count", config.n_layers);
  add("context_length", config.context_tokens);
  add("embedding_length", config.width);
  add("feed_forward_length", config.ffn_width);
  add("vocab_size", config.vocabulary);
  add("attention.head_count", config.n_heads);
  add("attention.head_count_kv", config.n_kv_heads);
  add("attention.key_length", config.head_dim);
  add("attention.value_length", config.head_dim);
  const auto add_float = [&](const char* key, double value) {
    if (value > 0) metadata.add(prefix + key, static_cast<float>(value));
  };
  add_float("attention.layer_norm_rms_epsilon", config.norm_epsilon);
  add_float("attention.scale", config.attention_scale);
  if (config.family ==
      Family::kGemma2) {  // 0 says that there is none, where nothing said would mean the usual
    metadata.add(prefix + "attn_logit_softcapping", static_cast<float>(config.score_softcap));
    metadata.add(prefix + "final_logit_softcapping", static_cast<float>(config.logit_softcap));
  } else {
    add_float("attn_logit_softcapping", config.score_softcap);
    add_float("final_logit_softcapping", config.logit_softcap);
  }
  add_windows(config, prefix, metadata);
  add_rope(config, prefix, metadata);
  if (config.half_split_differs()) metadata.add("quire.rope.half_split", true);
}

}  // namespace quire
