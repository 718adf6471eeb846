// config.json as numbers and metadata: defaults of the families, RoPE in its forms, windows, and what is
// refused.
#include "weights/folder_config.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "unit/weights/folder_writer.h"

namespace quire::test {
namespace {

FolderConfig read(const Json& config) { return read_folder_config(config.dump(), "config.json"); }

std::string config_error(const std::string& text) {
  try {
    (void)read_folder_config(text, "config.json");
  } catch (const Error& error) {
    const std::string what = error.what();
    EXPECT_EQ(what.find('\n'), std::string::npos) << what;
    EXPECT_LT(what.size(), 400u);
    return what;
  }
  return "no error";
}

// tiny_config() of a type with more keys, or others.
Json with(const char* type, const Json& more) {
  Json config = tiny_config(type);
  if (!more.is_null()) config.update(more);
  return config;
}

GgufFile metadata_of(const Json& config) {
  MetadataBuilder metadata;
  add_config_metadata(read(config), metadata);
  ModelParts parts;
  parts.path = "metadata";
  parts.metadata = std::move(metadata.entries);
  parts.memory = std::move(metadata.memory);
  return GgufFile::from_parts(std::move(parts));
}

TEST(FolderConfig, DefaultsOfTheFamilies) {
  const Json bare = {{"num_hidden_layers", 2},   {"hidden_size", 64}, {"intermediate_size", 128},
                     {"num_attention_heads", 8}, {"vocab_size", 100}, {"max_position_embeddings", 128}};
  const auto of = [&](const char* type) {
    Json config = bare;
    config["model_type"] = type;
    if (std::string(type).starts_with("qwen")) config["num_key_value_heads"] = 8;
    return read(config);
  };
  EXPECT_EQ(of("llama").n_kv_heads, 8u);
  EXPECT_EQ(of("mistral").n_kv_heads, 8u);
  EXPECT_EQ(of("gemma2").n_kv_heads, 4u);
  EXPECT_EQ(of("llama").head_dim, 8u);
  EXPECT_EQ(of("qwen3").head_dim, 128u);
  EXPECT_EQ(of("gemma3_text").head_dim, 256u);
  EXPECT_FALSE(of("llama").tied);
  EXPECT_TRUE(of("gemma2").tied);
  EXPECT_DOUBLE_EQ(of("phi3").norm_epsilon, 1e-5);
  EXPECT_DOUBLE_EQ(of("llama").norm_epsilon, 1e-6);
  EXPECT_TRUE(of("qwen2").qkv_bias);
  EXPECT_FALSE(of("qwen2").output_bias);
  EXPECT_FALSE(of("qwen3").qkv_bias);
  EXPECT_DOUBLE_EQ(of("gemma2").score_softcap, 50);
  EXPECT_DOUBLE_EQ(of("gemma2").logit_softcap, 30);
  EXPECT_DOUBLE_EQ(of("gemma3_text").score_softcap, 0);
  EXPECT_DOUBLE_EQ(of("gemma3_text").rope.base, 1e6);
  EXPECT_DOUBLE_EQ(of("gemma3_text").rope.local_base, 10000);
  EXPECT_DOUBLE_EQ(of("gemma2").rope.local_base, 0);
  EXPECT_EQ(of("gemma2").window_tokens, 4096u);
  EXPECT_EQ(of("gemma2").windowed, (std::vector<bool>{true, false}));
  EXPECT_EQ(of("gemma3_text").windowed, (std::vector<bool>{true, true}));
  EXPECT_EQ(of("llama").window_tokens, 0u);
}

// The 4B model's text_config says only what is not as usual.
TEST(FolderConfig, Gemma3WithVision) {
  const FolderConfig config = read({{"model_type", "gemma3"},
                                    {"text_config",
                                     {{"hidden_size", 2560},
                                      {"intermediate_size", 10240},
                                      {"model_type", "gemma3_text"},
                                      {"num_hidden_layers", 34},
                                      {"rope_scaling", {{"factor", 8.0}, {"rope_type", "linear"}}},
                                      {"sliding_window", 1024}}}});
  EXPECT_TRUE(config.has_vision);
  EXPECT_EQ(config.n_heads, 8u);
  EXPECT_EQ(config.vocabulary, 262208u);
  EXPECT_EQ(config.context_tokens, 131072u);
  EXPECT_EQ(config.rope.scaling, "linear");
  EXPECT_DOUBLE_EQ(config.rope.factor, 8);
  EXPECT_EQ(config.window_tokens, 1024u);
  EXPECT_FALSE(config.windowed[5]);
  EXPECT_TRUE(config.windowed[4]);
  EXPECT_NE(config_error(R"({"model_type":"gemma3"})").find("text_config is missing"), std::string::npos);
}

TEST(FolderConfig, AttentionScaleOfGemma) {
  EXPECT_DOUBLE_EQ(read(with("gemma2", {{"query_pre_attn_scalar", 144}})).attention_scale, 1.0 / 12);
  EXPECT_DOUBLE_EQ(read(with("gemma2", {{"query_pre_attn_scalar", 4}})).attention_scale, 0.5);
  const FolderConfig none = read(with("gemma2", {{"attn_logit_softcapping", nullptr}}));
  EXPECT_DOUBLE_EQ(none.score_softcap, 0);
  EXPECT_DOUBLE_EQ(none.logit_softcap, 30);
  const GgufFile file = metadata_of(with("gemma2", {{"attn_logit_softcapping", nullptr},
                                                    {"sliding_window", nullptr},
                                                    {"layer_types", {"full_attention", "full_attention"}}}));
  EXPECT_EQ(file.get_float("gemma2.attn_logit_softcapping"), 0);
  EXPECT_EQ(file.get_float("gemma2.final_logit_softcapping"), 30);
  EXPECT_EQ(file.get_uint("gemma2.attention.sliding_window"), 0u);
}

TEST(FolderConfig, WindowsAsMetadata) {
  const char* window = ".attention.sliding_window";
  const char* pattern = ".attention.sliding_window_pattern";
  const auto check = [&](const std::string& arch, const Json& config, int n_window,
                         const std::vector<bool>& bools, int period) {
    const GgufFile file = metadata_of(config);
    EXPECT_EQ(file.get_uint_or(arch + window, 0), static_cast<uint64_t>(n_window)) << config;
    const MetadataValue* value = file.find(arch + pattern);
    if (!bools.empty()) {
      EXPECT_EQ(file.get_bool_array(arch + pattern), bools) << config;
    } else if (period > 0) {
      EXPECT_EQ(file.get_uint(arch + pattern), static_cast<uint64_t>(period)) << config;
    } else {
      EXPECT_EQ(value, nullptr) << config;
    }
  };
  const Json layers = {"sliding_attention", "full_attention"};
  const Json turned = {"full_attention", "sliding_attention"};
  const Json full = {"full_attention", "full_attention"};
  check("llama", with("mistral", {{"sliding_window", 16}}), 16, {true, true}, 0);
  check("llama", with("mistral", {{"sliding_window", nullptr}}), 0, {}, 0);
  check("llama", with("mistral", {}), 4096, {true, true}, 0);  // as transformers fills it in
  check("phi3", with("phi3", {{"sliding_window", 16}}), 16, {true, true}, 0);
  check("qwen2",
        with("qwen2", {{"sliding_window", 16}, {"use_sliding_window", false}, {"max_window_layers", 1}}), 0,
        {}, 0);
  check("qwen2",
        with("qwen2", {{"sliding_window", 16}, {"use_sliding_window", true}, {"max_window_layers", 1}}), 16,
        {false, true}, 0);
  check("qwen3",
        with("qwen3", {{"sliding_window", 16}, {"use_sliding_window", true}, {"max_window_layers", 0}}), 16,
        {true, true}, 0);
  check("qwen3", with("qwen3", {{"layer_types", full}}), 0, {}, 0);
  check("gemma2", with("gemma2", {{"sliding_window", 16}}), 16, {}, 0);
  check("gemma2", with("gemma2", {{"layer_types", turned}}), 4096, {false, true}, 0);
  check("gemma2", with("gemma2", {{"layer_types", full}}), 0, {}, 0);
  check("gemma3", with("gemma3_text", {{"layer_types", layers}}), 4096, {}, 2);
  check("gemma3", with("gemma3_text", {{"sliding_window", 16}}), 16, {}, 0);
  check("gemma3", with("gemma3_text", {{"sliding_window_pattern", 2}, {"sliding_window", 8}}), 8, {}, 2);
  EXPECT_NE(config_error(with("qwen2", {{"layer_types", layers}}).dump()).find("sliding_window is missing"),
            std::string::npos);
  EXPECT_NE(config_error(with("mistral", {{"layer_types", layers}, {"sliding_window", 4}}).dump())
                .find("other layers"),
            std::string::npos);
  EXPECT_NE(config_error(with("llama", {{"sliding_window", 4}}).dump()).find("sliding_window is not known"),
            std::string::npos);
  EXPECT_NE(config_error(with("gemma2", {{"layer_types", {"full_attention", "linear_attention"}}}).dump())
                .find("'linear_attention'"),
            std::string::npos);
  EXPECT_NE(config_error(with("gemma2", {{"layer_types", {"full_attention"}}}).dump())
                .find("1 entries for 2 layers"),
            std::string::npos);
}

TEST(FolderConfig, RopeInOldAndNewForm) {
  EXPECT_DOUBLE_EQ(read(with("llama", {{"rope_theta", 5e5}})).rope.base, 5e5);
  EXPECT_DOUBLE_EQ(
      read(with("llama", {{"rope_parameters", {{"rope_theta", 5e5}, {"rope_type", "default"}}}})).rope.base,
      5e5);
  const FolderConfig linear = read(with("llama", {{"rope_scaling", {{"type", "linear"}, {"factor", 4}}}}));
  EXPECT_EQ(linear.rope.scaling, "linear");
  EXPECT_DOUBLE_EQ(linear.rope.factor, 4);
  const FolderConfig dynamic =
      read(with("llama", {{"rope_parameters", {{"rope_type", "dynamic"}, {"factor", 2}}}}));
  EXPECT_EQ(dynamic.rope.scaling, "dynamic");
  EXPECT_EQ(dynamic.rope.original_context, 64u);
  const FolderConfig gemma = read(with(
      "gemma3_text", {{"rope_parameters",
                       {{"full_attention", {{"rope_type", "linear"}, {"factor", 8}, {"rope_theta", 2e6}}},
                        {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", 7000}}}}}}));
  EXPECT_DOUBLE_EQ(gemma.rope.base, 2e6);
  EXPECT_DOUBLE_EQ(gemma.rope.local_base, 7000);
  EXPECT_DOUBLE_EQ(gemma.rope.factor, 8);
  EXPECT_EQ(read(with("phi3", {{"partial_rotary_factor", 0.5}})).rope.n_dims, 2u);
}

TEST(FolderConfig, Yarn) {
  const auto yarn = [](const Json& more) {
    Json scaling = {{"type", "yarn"}, {"factor", 4}, {"original_max_position_embeddings", 32}};
    if (!more.is_null()) scaling.update(more);
    return read(with("qwen2", {{"rope_scaling", scaling}})).rope;
  };
  const double usual = 1 + 0.1 * std::log(4.0);
  EXPECT_DOUBLE_EQ(yarn({}).attention_factor, 1);
  EXPECT_EQ(yarn({}).original_context, 32u);
  EXPECT_DOUBLE_EQ(yarn({{"attention_factor", 1.0}}).attention_factor, 1 / usual);
  EXPECT_DOUBLE_EQ(yarn({{"mscale", 0.5}, {"mscale_all_dim", 2}}).attention_factor,
                   (1 + 0.05 * std::log(4.0)) / (1 + 0.2 * std::log(4.0)) / usual);
  EXPECT_DOUBLE_EQ(yarn({{"factor", nullptr}}).factor, 2);  // 64 tokens from 32
  EXPECT_DOUBLE_EQ(yarn({{"beta_fast", 16}}).beta_fast, 16);
  EXPECT_NE(
      config_error(
          with("qwen2", {{"rope_scaling", {{"type", "yarn"}, {"factor", 2}, {"truncate", false}}}}).dump())
          .find("rope_scaling.truncate is false"),
      std::string::npos);
  const GgufFile file =
      metadata_of(with("qwen2", {{"rope_scaling", {{"type", "yarn"}, {"factor", 4}, {"beta_slow", 2}}}}));
  EXPECT_EQ(file.get_string("qwen2.rope.scaling.type"), "yarn");
  EXPECT_EQ(file.get_uint("qwen2.rope.scaling.original_context_length"), 64u);
  EXPECT_EQ(file.get_float("qwen2.rope.scaling.yarn_beta_slow"), 2);
  EXPECT_EQ(file.find("qwen2.rope.scaling.attn_factor"), nullptr);
}

struct Refused {
  const char* type;
  Json more;
  const char* says;
};

TEST(FolderConfig, WhatChangesTheResultAndIsNotDoneIsNamed) {
  const std::vector<Refused> cases = {
      {"mamba", {}, "model_type is 'mamba'; supported are"},
      {"llama", {{"hidden_act", "gelu"}}, "hidden_act is 'gelu'; silu is supported"},
      {"gemma2", {{"hidden_activation", "gelu"}}, "hidden_activation is 'gelu'"},
      {"llama", {{"mlp_bias", true}}, "mlp_bias is true, which is not supported"},
      {"mistral", {{"attention_bias", true}}, "attention_bias is true"},
      {"llama", {{"attention_bias", 1}}, "attention_bias is 1, not true or false"},
      {"llama",
       {{"quantization_config", {{"bits", 4}}}},
       "quantization_config is an object, which is not supported"},
      {"llama", {{"num_local_experts", 8}}, "num_local_experts is 8"},
      {"llama", {{"attn_logit_softcapping", 50.0}}, "attn_logit_softcapping is 50.0"},
      {"llama", {{"logits_scaling", 8}}, "logits_scaling is 8"},
      {"gemma3_text", {{"use_bidirectional_attention", true}}, "use_bidirectional_attention is true"},
      {"llama", {{"rope_scaling", {{"rope_type", "mrope"}}}}, "rope_scaling.rope_type is 'mrope'; known are"},
      {"llama", {{"rope_scaling", {{"type", "linear"}}}}, "rope_scaling.factor is missing"},
      {"llama", {{"rope_scaling", {{"type", "linear"}, {"factor", -1}}}}, "rope_scaling.factor is -1"},
      {"llama", {{"rope_scaling", "linear"}}, "rope_scaling is 'linear', not an object"},
      {"phi3",
       {{"rope_scaling", {{"type", "su"}, {"long_factor", {1.0}}, {"short_factor", {1.0, 1.0}}}}},
       "rope_scaling.long_factor has 1 numbers, where 2 are wanted"},
      {"phi3",
       {{"rope_scaling", {{"type", "longrope"}, {"short_mscale", 1.1}}}},
       "short_mscale is not supported"},
      {"llama", {{"partial_rotary_factor", 0.25}}, "leaves 1 dims"},
      {"llama", {{"num_attention_heads", 3}}, "3, which 2 KV heads cannot share evenly"},
      {"llama", {{"head_dim", nullptr}, {"hidden_size", 9}}, "does not divide into 4 heads"},
      {"llama", {{"num_hidden_layers", 0}}, "num_hidden_layers is 0, not a whole number from 1 to 512"},
      {"llama", {{"num_hidden_layers", 4294967295u}}, "num_hidden_layers is 4294967295"},
      {"llama", {{"hidden_size", -8}}, "hidden_size is -8"},
      {"llama", {{"hidden_size", 8.5}}, "hidden_size is 8.5"},
      {"llama", {{"hidden_size", "8"}}, "hidden_size is '8'"},
      {"llama", {{"vocab_size", nullptr}}, "vocab_size is missing"},
      {"llama", {{"rms_norm_eps", 0}}, "rms_norm_eps is 0, not a positive number"},
  };
  for (const Refused& each : cases) {
    const std::string error = config_error(with(each.type, each.more).dump());
    EXPECT_EQ(error.rfind("config.json: ", 0), 0u) << error;
    EXPECT_NE(error.find(each.says), std::string::npos) << error << "\n  instead of " << each.says;
  }
}

TEST(FolderConfig, HarmlessKeysArePassedOver) {
  const Json more = {
      {"attention_dropout", 0.1}, {"initializer_range", 0.02}, {"torch_dtype", "bfloat16"},
      {"use_cache", false},       {"pretraining_tp", 2},       {"quantization_config", nullptr},
      {"num_experts", 0},         {"logits_scaling", 1.0},     {"mlp_bias", false},
      {"auto_map", {{"a", "b"}}}, {"hidden_size", 8.0}};
  EXPECT_EQ(config_error(with("llama", more).dump()), "no error");
}

TEST(FolderConfig, BrokenJson) {
  EXPECT_EQ(config_error(""), "config.json: this is no valid JSON from byte 1 on");
  EXPECT_EQ(config_error("[]"), "config.json: this is no JSON object");
  EXPECT_EQ(config_error("{}"), "config.json: model_type is missing");
  EXPECT_EQ(config_error(R"({"a":1,"a":2})"), "config.json: the key 'a' is there twice");
  EXPECT_EQ(config_error(R"({"a":1e999})"), "config.json: this JSON has a number beyond all range");
  EXPECT_EQ(config_error(R"({"a":)" + std::string(100'000, '[')),
            "config.json: the JSON nests deeper than 64");
  EXPECT_EQ(config_error("{\"a\":\"\xff\"}"), "config.json: this is no valid JSON from byte 7 on");
}

}  // namespace
}  // namespace quire::test
