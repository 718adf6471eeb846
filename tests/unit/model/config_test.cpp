// What ModelConfig::read and Model::load accept and refuse: each refusal is one sentence that names the file
// and the key, tensor or number at fault.
#include "model/config.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "base/error.h"
#include "model/model.h"
#include "property/model/tiny_model.h"

namespace quire::test {
namespace {

TinySpec small() {
  TinySpec spec;
  spec.n_heads = 6;
  spec.n_kv_heads = 2;
  spec.head_dim = 8;
  spec.width = 48;
  spec.ffn_width = 40;
  return spec;
}

// The same key with another value, or a new one.
template <typename T>
TinySpec with(const std::string& key, T value) {
  TinySpec spec = small();
  spec.without.insert(key);
  spec.extra = [=](GgufWriter& file) { file.add(key, value); };
  return spec;
}

// What loading says; empty when it succeeds.
std::string refusal(const TinySpec& spec) {
  const TinyFile file(spec);
  try {
    Team team(1);
    Model::load(file.gguf, team);
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

std::string quoted(const std::string& text) { return std::string("'").append(text).append("'"); }

void expect_refused(const TinySpec& spec, const std::string& naming) {
  const std::string text = refusal(spec);
  EXPECT_NE(text, "") << naming << " was accepted";
  EXPECT_NE(text.find(naming), std::string::npos) << "'" << text << "' does not name " << naming;
  EXPECT_NE(text.find("tiny.gguf"), std::string::npos) << text;
  EXPECT_EQ(text.find('\n'), std::string::npos) << text;
  EXPECT_LT(text.size(), 250u) << text;
}

TEST(ModelConfig, ReadsWhatTheFileSays) {
  TinySpec spec = small();
  spec.rope_dims = 4;
  spec.rope_base = 500000;
  spec.rope_scale = 8;
  const ModelConfig config = ModelConfig::read(TinyFile(spec).gguf);
  EXPECT_EQ(config.architecture, "llama");
  EXPECT_EQ(config.name, "tiny");
  EXPECT_EQ(config.n_layers, 2u);
  EXPECT_EQ(config.width, 48u);
  EXPECT_EQ(config.ffn_width, 40u);
  EXPECT_EQ(config.n_heads, 6u);
  EXPECT_EQ(config.n_kv_heads, 2u);
  EXPECT_EQ(config.head_dim, 8u);
  EXPECT_EQ(config.rope_dims, 4u);
  EXPECT_EQ(config.vocabulary, 40u);
  EXPECT_EQ(config.context_tokens, 1024u);
  EXPECT_EQ(config.trained_tokens, 1024u);
  EXPECT_EQ(config.norm_epsilon, 1e-5f);
  EXPECT_EQ(config.rope,
            make_rope({.n_dims = 4, .base = 500000, .scaling = RopeScaling::kLinear, .factor = 8}));
  EXPECT_EQ(config.rope_text, "linear by 8");
  EXPECT_FALSE(config.window_rope.has_value());
  EXPECT_EQ(config.embedding_scale, 1);
  EXPECT_EQ(config.query_scale, 1 / std::sqrt(8.0f));
  EXPECT_TRUE(config.geometry().window_tokens.empty());
  EXPECT_EQ(config.geometry().score_softcap, 0);
  EXPECT_EQ(config.geometry().n_kv_heads, (std::vector<size_t>{2, 2}));
  EXPECT_EQ(config.geometry().token_bytes(Recipe{}), 2u * 2 * 8 * 2 * 2);
}

TEST(ModelConfig, FillsInWhatMayBeLeftOut) {
  TinySpec spec = small();
  spec.without = {"general.name", "llama.attention.head_count_kv"};
  spec.n_kv_heads = 6;
  const ModelConfig config = ModelConfig::read(TinyFile(spec).gguf);
  EXPECT_EQ(config.n_kv_heads, 6u);
  EXPECT_EQ(config.head_dim, 8u);
  EXPECT_EQ(config.rope_dims, 8u);
  EXPECT_EQ(config.rope, make_rope({.n_dims = 8}));
  EXPECT_EQ(config.rope_text, "no scaling");
}

// U38: a head size that is not width / heads.
TEST(ModelConfig, TakesTheHeadSizeGiven) {
  TinySpec spec = small();
  spec.head_dim = 20;
  EXPECT_EQ(refusal(spec), "");
  EXPECT_EQ(ModelConfig::read(TinyFile(spec).gguf).head_dim, 20u);
}

TEST(ModelConfig, OtherArchitecturesAreRefused) {
  for (const char* name : {"qwen", "gemma", "", "LLAMA", "llama4"}) {
    expect_refused(with("general.architecture", name), quoted(name));
  }
}

TEST(ModelConfig, MissingKeysAreNamed) {
  for (const char* key :
       {"general.architecture", "llama.block_count", "llama.embedding_length", "llama.feed_forward_length",
        "llama.context_length", "llama.attention.head_count", "llama.attention.layer_norm_rms_epsilon"}) {
    TinySpec spec = small();
    spec.without.insert(key);
    expect_refused(spec, key);
  }
}

// U27: layer counts of hostile files.
TEST(ModelConfig, AbsurdCountsAreRefused) {
  constexpr uint32_t kMost = std::numeric_limits<uint32_t>::max();
  for (const char* key :
       {"llama.block_count", "llama.embedding_length", "llama.feed_forward_length", "llama.context_length",
        "llama.attention.head_count", "llama.attention.head_count_kv"}) {
    expect_refused(with(key, uint32_t{0}), key);
    if (key != std::string("llama.context_length")) expect_refused(with(key, kMost), key);
    expect_refused(with(key, std::numeric_limits<uint64_t>::max()), key);
    expect_refused(with(key, int32_t{-1}), key);
    expect_refused(with(key, "many"), key);
    expect_refused(with(key, 2.0f), key);
  }
  expect_refused(with("llama.block_count", uint32_t{513}), "llama.block_count");
  expect_refused(with("llama.block_count", uint32_t{512}),
                 "llama.block_count");  // more than the file has tensors
  expect_refused(with("llama.block_count", uint32_t{3}), "llama.block_count");
}

// Fewer layers than the file has: their tensors would be ignored.
TEST(ModelConfig, LayersLeftOverAreRefused) {
  expect_refused(with("llama.block_count", uint32_t{1}), "blk.1.");
}

// U05: heads that cannot share evenly.
TEST(ModelConfig, UnevenHeadsAreRefused) {
  struct Heads {
    size_t query;
    size_t kv;
  };
  for (const Heads heads : {Heads{9, 2}, {3, 2}, {2, 4}, {7, 3}}) {
    TinySpec spec = small();
    spec.n_heads = heads.query;
    spec.n_kv_heads = heads.kv;
    spec.width = 8 * heads.query;
    expect_refused(spec,
                   std::to_string(heads.query) + " query heads cannot share " + std::to_string(heads.kv));
  }
}

// U38: head counts that differ by layer are not read as one number.
TEST(ModelConfig, HeadCountsPerLayerAreRefused) {
  TinySpec spec = small();
  spec.without.insert("llama.attention.head_count_kv");
  spec.extra = [](GgufWriter& file) { file.add_array<uint32_t>("llama.attention.head_count_kv", {3, 1}); };
  expect_refused(spec, "llama.attention.head_count_kv");
}

TEST(ModelConfig, HeadSizesThatDoNotFollowAreRefused) {
  expect_refused(with("llama.embedding_length", uint32_t{50}), "llama.attention.key_length");
  expect_refused(with("llama.attention.key_length", uint32_t{0}), "llama.attention.key_length");
  expect_refused(with("llama.attention.key_length", uint32_t{513}), "llama.attention.key_length");
  expect_refused(with("llama.attention.value_length", uint32_t{16}), "values of 16");
}

TEST(ModelConfig, EpsilonsThatAreNotPositiveNumbersAreRefused) {
  const std::string key = "llama.attention.layer_norm_rms_epsilon";
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const float value : {0.0f, -1e-5f, nan, std::numeric_limits<float>::infinity()}) {
    expect_refused(with(key, value), key);
  }
}

TEST(ModelConfig, RopeThatWouldBeIgnoredIsRefused) {
  for (const char* type : {"su", "llama3", "YaRN", ""}) {
    TinySpec spec = with("llama.rope.scaling.type", type);
    expect_refused(spec, quoted(type));
  }
  for (const char* type : {"linear", "yarn", "dynamic"}) {
    expect_refused(with("llama.rope.scaling.type", type), "llama.rope.scaling.factor");
  }
  expect_refused(with("llama.rope.scaling.type", "longrope"), "rope_factors_long.weight");
  for (const char* key :
       {"llama.rope.scaling.alpha", "llama.rope.dimension_sections", "llama.rope.new_trick"}) {
    expect_refused(with(key, 2.0f), key);
  }
  for (const char* key : {"llama.rope.scaling.factor", "llama.rope.scale_linear", "llama.rope.freq_base"}) {
    for (const float value : {-2.0f, std::numeric_limits<float>::quiet_NaN()})
      expect_refused(with(key, value), key);
  }
  expect_refused(with("llama.rope.dimension_count", uint32_t{7}), "llama.rope.dimension_count");
  expect_refused(with("llama.rope.dimension_count", uint32_t{10}), "llama.rope.dimension_count");
  expect_refused(with("llama.rope.dimension_count", uint32_t{0}), "llama.rope.dimension_count");
}

TEST(ModelConfig, FeaturesThatWouldBeIgnoredAreRefused) {
  expect_refused(with("llama.expert_count", uint32_t{8}), "mixture-of-experts");
  expect_refused(with("llama.attention.causal", false), "later tokens");
  for (const char* key : {"llama.attention.clamp_kqv", "llama.attention.max_alibi_bias", "llama.logit_scale",
                          "llama.embedding_scale", "llama.residual_scale", "llama.something_new"}) {
    expect_refused(with(key, 2.0f), key);
    expect_refused(with(key, "text"), key);
    expect_refused(with(key, uint64_t{1}), key);
    EXPECT_EQ(refusal(with(key, 0.0f)), "") << key;
    EXPECT_EQ(refusal(with(key, false)), "") << key;
  }
  TinySpec spec = small();
  spec.extra = [](GgufWriter& file) { file.add_array<uint32_t>("llama.layers_without_rope", {3, 1}); };
  expect_refused(spec, "llama.layers_without_rope");
  EXPECT_EQ(refusal(with("llama.expert_count", uint32_t{0})), "");
  EXPECT_EQ(refusal(with("llama.vocab_size", uint32_t{40})), "");
  EXPECT_EQ(refusal(with("other.logit_scale", 2.0f)), "");
}

TEST(ModelConfig, ScalesAndCaps) {
  const auto read = [](const std::string& key, float value) {
    return ModelConfig::read(TinyFile(with(key, value)).gguf);
  };
  EXPECT_EQ(read("llama.attention.scale", 0.25f).query_scale, 0.25f);
  EXPECT_EQ(read("llama.attn_logit_softcapping", 50).geometry().score_softcap, 50);
  EXPECT_EQ(read("llama.final_logit_softcapping", 30).logit_softcap, 30);
  for (const char* key :
       {"llama.attention.scale", "llama.attn_logit_softcapping", "llama.final_logit_softcapping"}) {
    for (const float value : {-1.0f, std::numeric_limits<float>::quiet_NaN()})
      expect_refused(with(key, value), key);
    EXPECT_EQ(refusal(with(key, 0.0f)), "") << key;
  }
}

std::vector<size_t> windows_of(TinySpec spec, const RopeOverrides& overrides = {}) {
  return ModelConfig::read(TinyFile(spec).gguf, overrides).geometry().window_tokens;
}

TEST(ModelConfig, Windows) {
  TinySpec spec = small();
  spec.n_layers = 7;
  EXPECT_EQ(windows_of(spec), std::vector<size_t>());
  spec.window_tokens = 16;
  EXPECT_EQ(windows_of(spec), std::vector<size_t>(7, 16));
  spec.window_period = 3;
  EXPECT_EQ(windows_of(spec), (std::vector<size_t>{16, 16, 0, 16, 16, 0, 16}));
  spec.window_period = 1;
  EXPECT_EQ(windows_of(spec), std::vector<size_t>());
  spec.window_period = 0;
  spec.extra = [](GgufWriter& file) {
    file.add_array<int32_t>("llama.attention.sliding_window_pattern", {0, 1, 1, 0, 0, 0, 1});
  };
  EXPECT_EQ(windows_of(spec), (std::vector<size_t>{0, 16, 16, 0, 0, 0, 16}));
  spec.extra = [](GgufWriter& file) {
    file.add_array<int32_t>("llama.attention.sliding_window_pattern", {0, 1});
  };
  expect_refused(spec, "llama.attention.sliding_window_pattern");
  expect_refused(with("llama.attention.sliding_window_pattern", "every other"), "sliding_window_pattern");
}

// A window that no sequence fills is none, until the context asked for is longer.
TEST(ModelConfig, WindowsAsLongAsTheContextAreNone) {
  TinySpec spec = small();
  spec.window_tokens = 1024;
  EXPECT_EQ(windows_of(spec), std::vector<size_t>());
  EXPECT_EQ(windows_of(spec, {.context_tokens = 1025}), std::vector<size_t>(2, 1024));
  spec.window_tokens = 1023;
  EXPECT_EQ(windows_of(spec), std::vector<size_t>(2, 1023));
}

TinySpec small_gemma(const std::string& architecture, size_t n_layers) {
  TinySpec spec = small();
  spec.architecture = architecture;
  spec.n_layers = n_layers;
  return spec;
}

TEST(ModelConfig, GemmaHasWhatItsFilesLeaveOut) {
  TinySpec spec = small_gemma("gemma2", 4);
  spec.context_tokens = 8192;
  const ModelConfig two = ModelConfig::read(TinyFile(spec).gguf);
  EXPECT_EQ(two.geometry().window_tokens, (std::vector<size_t>{4096, 0, 4096, 0}));
  EXPECT_EQ(two.geometry().score_softcap, 50);
  EXPECT_EQ(two.logit_softcap, 30);
  EXPECT_EQ(two.embedding_scale, std::sqrt(48.0f));
  EXPECT_FALSE(two.window_rope.has_value());
  spec = small_gemma("gemma3", 7);
  spec.window_tokens = 512;
  spec.rope_base = 1000000;
  spec.rope_scale = 8;
  const ModelConfig three = ModelConfig::read(TinyFile(spec).gguf);
  EXPECT_EQ(three.geometry().window_tokens, (std::vector<size_t>{512, 512, 512, 512, 512, 0, 512}));
  EXPECT_EQ(three.geometry().score_softcap, 0);
  EXPECT_EQ(three.logit_softcap, 0);
  EXPECT_EQ(three.layer_rope(0), make_rope({.n_dims = 8, .base = 10000}));
  EXPECT_EQ(three.layer_rope(5), three.rope);
  spec.extra = [](GgufWriter& file) { file.add("gemma3.rope.freq_base_swa", 20000.0f); };
  EXPECT_EQ(ModelConfig::read(TinyFile(spec).gguf).layer_rope(6), make_rope({.n_dims = 8, .base = 20000}));
}

// Layers with a window turn as they were trained, whatever scaling is asked for.
TEST(ModelConfig, ScalingThatIsAskedForIsNotForWindows) {
  TinySpec spec = small_gemma("gemma2", 2);
  spec.window_tokens = 16;
  const ModelConfig config = ModelConfig::read(TinyFile(spec).gguf, {.factor = 4});
  EXPECT_EQ(config.layer_rope(0), make_rope({.n_dims = 8}));
  EXPECT_EQ(config.layer_rope(1), make_rope({.n_dims = 8, .scaling = RopeScaling::kLinear, .factor = 4}));
  spec.window_period = 3;  // all have one
  const ModelConfig all = ModelConfig::read(TinyFile(spec).gguf, {.factor = 4});
  EXPECT_EQ(all.layer_rope(0), config.layer_rope(1));
}

// The models of 27 billion parameters divide queries by the root of width / heads.
TEST(ModelConfig, QueriesOfTheLargeGemmas) {
  for (const auto& [architecture, n_layers] : {std::pair{"gemma2", 46}, {"gemma3", 62}}) {
    TinySpec spec = small_gemma(architecture, static_cast<size_t>(n_layers));
    spec.head_dim = 20;
    spec.vocabulary = 4;
    EXPECT_EQ(ModelConfig::read(TinyFile(spec).gguf).query_scale, 1 / std::sqrt(8.0f)) << architecture;
    spec.n_layers = 2;
    EXPECT_EQ(ModelConfig::read(TinyFile(spec).gguf).query_scale, static_cast<float>(1 / std::sqrt(20.0)));
  }
}

// Of every family: what it has must be there, and what it has not may not.
TEST(ModelLoad, EveryFamilyHasItsTensors) {
  for (const ModelFamily& family : families()) {
    TinySpec spec = small();
    spec.architecture = family.architecture;
    spec.untied = true;
    EXPECT_EQ(refusal(spec), "") << family.architecture;
    const GgufFile file = TinyFile(spec).gguf;
    const auto check = [&](const std::string& name, bool has, size_t n) {
      TinySpec other = spec;
      if (has) {
        other.without.insert(name);
      } else {
        other.extra = [&](GgufWriter& writer) {
          writer.add_tensor(name, {n}, TensorType::F32, pattern_bytes(4 * n));
        };
      }
      expect_refused(other, name);
    };
    check("blk.1.attn_q_norm.weight", family.head_norms, 8);
    check("blk.0.attn_k_norm.weight", family.head_norms, 8);
    check("blk.0.post_attention_norm.weight", family.post_norms, 48);
    check("blk.1.post_ffw_norm.weight", family.post_norms, 48);
    if (family.biases != Biases::kOptional)
      check("blk.1.attn_k.bias", family.biases == Biases::kRequired, 16);
    check(family.fused ? "blk.0.attn_qkv.weight" : "blk.0.attn_v.weight", true, 0);
    check(family.fused ? "blk.1.attn_q.weight" : "blk.1.attn_qkv.weight", false, 48);
  }
}

TEST(ModelLoad, MissingTensorsAreNamed) {
  for (const char* name :
       {"token_embd.weight", "output_norm.weight", "blk.0.attn_norm.weight", "blk.1.attn_q.weight",
        "blk.0.attn_k.weight", "blk.1.attn_v.weight", "blk.0.attn_output.weight", "blk.1.ffn_norm.weight",
        "blk.0.ffn_gate.weight", "blk.1.ffn_up.weight", "blk.0.ffn_down.weight"}) {
    TinySpec spec = small();
    spec.untied = true;        // more tensors than a count of layers needs,
    spec.rope_factors = true;  // so that it is the missing one that is noticed
    spec.without.insert(name);
    expect_refused(spec, name);
  }
}

TEST(ModelLoad, WrongShapesAreNamed) {
  const std::map<std::string, std::vector<uint64_t>> wrong = {
      {"blk.0.attn_norm.weight", {47}},
      {"blk.0.attn_q.weight", {48, 47}},
      {"blk.0.attn_k.weight", {48, 48}},
      {"blk.1.attn_v.weight", {47, 16}},
      {"blk.1.attn_output.weight", {48, 49}},
      {"blk.1.ffn_norm.weight", {48, 2}},
      {"blk.0.ffn_gate.weight", {40, 48}},
      {"blk.0.ffn_up.weight", {48, 40, 2}},
      {"blk.1.ffn_down.weight", {48, 40}},
      {"output_norm.weight", {96}},
      {"token_embd.weight", {49, 40}},
      {"output.weight", {48, 41}},
      {"rope_freqs.weight", {8}},
  };
  for (const auto& [name, shape] : wrong) {
    TinySpec spec = small();
    spec.untied = true;
    spec.rope_factors = true;
    spec.reshaped[name] = shape;
    expect_refused(spec, quoted(name));
  }
}

TEST(ModelLoad, UnknownTensorsAreRefused) {
  for (const char* name : {"blk.0.attn_output.bias", "blk.2.attn_k.bias", "blk.0.attn_norm.bias",
                           "blk.0.attn_q_norm.weight", "mystery"}) {
    TinySpec spec = small();
    spec.extra = [&](GgufWriter& file) { file.add_tensor(name, {4}, TensorType::F32, pattern_bytes(16)); };
    expect_refused(spec, name);
  }
}

TEST(ModelLoad, BiasesThatDoNotFitAreRefused) {
  for (const char* name : {"blk.0.attn_q.bias", "blk.1.attn_k.bias", "blk.1.attn_v.bias"}) {
    TinySpec spec = small();
    spec.biases = true;
    EXPECT_EQ(refusal(spec), "");
    spec.reshaped[name] = {4};
    expect_refused(spec, name);
    spec.reshaped.clear();
    spec.without = {name};
    EXPECT_EQ(refusal(spec), "") << name;
    spec.extra = [&](GgufWriter& file) {
      const size_t n_heads = name[11] == 'q' ? spec.n_heads : spec.n_kv_heads;
      ByteWriter bias;
      for (size_t i = 0; i < n_heads * spec.head_dim; ++i)
        bias.put(i == 2 ? std::numeric_limits<float>::infinity() : 1.0f);
      file.add_tensor(name, {n_heads * spec.head_dim}, TensorType::F32, bias.bytes());
    };
    expect_refused(spec, "finite");
  }
}

TEST(ModelLoad, RopeFactorsThatAreNotPositiveNumbersAreRefused) {
  for (const float value : {0.0f, -1.0f, std::numeric_limits<float>::quiet_NaN()}) {
    TinySpec spec = small();
    spec.extra = [&](GgufWriter& file) {
      ByteWriter factors;
      for (int i = 0; i < 4; ++i) factors.put(i == 2 ? value : 1.0f);
      file.add_tensor("rope_freqs.weight", {4}, TensorType::F32, factors.bytes());
    };
    expect_refused(spec, "rope_freqs.weight");
  }
}

TEST(ModelLoad, TheSmallModelItselfLoads) {
  EXPECT_EQ(refusal(small()), "");
  TinySpec spec = small();
  spec.untied = true;
  spec.rope_factors = true;
  EXPECT_EQ(refusal(spec), "");
}

}  // namespace
}  // namespace quire::test
