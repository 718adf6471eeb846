// Model files with random weights, in memory: shapes that no small model at hand has. Weights are numbers of
// bf16, so that both sides have the same ones.
#pragma once

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "base/half.h"
#include "property/random.h"
#include "unit/engine/byte_alphabet.h"
#include "unit/weights/gguf_writer.h"

namespace quire::test {

struct RandomGgufShape {
  const char* architecture;
  size_t n_layers;
  size_t width;
  size_t ffn_width;
  size_t n_heads;
  size_t n_kv_heads;
  size_t head_dim;
  size_t vocabulary;  // at least 300
  bool tied = true;
  // Of gemma2 and gemma3: every other layer has a window; caps where they are not 0.
  size_t window = 0;
  float score_cap = 0;
  float logit_cap = 0;
  float post_norm = 1;  // mean of the norms behind parts
};

class RandomGguf {
 public:
  RandomGguf(const RandomGgufShape& shape, uint64_t seed) : s_(shape), random_(seed) {
    const std::string architecture(s_.architecture);
    add_metadata(architecture);
    add_vocabulary();
    matrix("token_embd.weight", s_.width, s_.vocabulary);
    if (!s_.tied) matrix("output.weight", s_.width, s_.vocabulary);
    norm("output_norm.weight", s_.width);
    for (size_t layer = 0; layer < s_.n_layers; ++layer) {
      add_layer(architecture, std::string("blk.").append(std::to_string(layer)).append("."));
    }
  }

  Bytes build() const { return writer_.build(); }

 private:
  void add_metadata(const std::string& architecture) {
    writer_.add("general.architecture", s_.architecture);
    const auto add = [&](const char* key, size_t value) {
      writer_.add<uint32_t>(architecture + "." + key, static_cast<uint32_t>(value));
    };
    add("block_count", s_.n_layers);
    add("context_length", 2048);
    add("embedding_length", s_.width);
    add("feed_forward_length", s_.ffn_width);
    add("attention.head_count", s_.n_heads);
    add("attention.head_count_kv", s_.n_kv_heads);
    add("attention.key_length", s_.head_dim);
    add("attention.value_length", s_.head_dim);
    writer_.add<float>(architecture + ".attention.layer_norm_rms_epsilon", 1e-5f);
    if (!is_gemma()) return;
    add("attention.sliding_window", s_.window);
    add("attention.sliding_window_pattern", 2);
    writer_.add<float>(architecture + ".attn_logit_softcapping", s_.score_cap);
    writer_.add<float>(architecture + ".final_logit_softcapping", s_.logit_cap);
    writer_.add<float>(architecture + ".rope.freq_base", 1e6f);
  }
  bool is_gemma() const { return std::string(s_.architecture).starts_with("gemma"); }

  void add_vocabulary() {
    std::vector<std::string> tokens;
    int n_other = 0;
    for (int byte = 0; byte < 256; ++byte) tokens.push_back(alphabet_character(byte, n_other));
    for (size_t i = tokens.size(); i + 1 < s_.vocabulary; ++i)
      tokens.push_back(std::string("token").append(std::to_string(i)));
    tokens.emplace_back("<|endoftext|>");
    std::vector<int32_t> types(s_.vocabulary, kTokenNormal);
    types.back() = kTokenControl;
    writer_.add("tokenizer.ggml.model", "gpt2");
    writer_.add("tokenizer.ggml.pre", "smollm");
    writer_.add_array("tokenizer.ggml.tokens", tokens);
    writer_.add_array("tokenizer.ggml.token_type", types);
    writer_.add_array("tokenizer.ggml.merges", std::vector<std::string>{});
    writer_.add<uint32_t>("tokenizer.ggml.eos_token_id", static_cast<uint32_t>(s_.vocabulary - 1));
  }

  void add_layer(const std::string& architecture, const std::string& prefix) {
    const size_t n_q = s_.n_heads * s_.head_dim;
    const size_t n_kv = s_.n_kv_heads * s_.head_dim;
    norm(prefix + "attn_norm.weight", s_.width);
    norm(prefix + "ffn_norm.weight", s_.width);
    if (architecture == "phi3") {
      matrix(prefix + "attn_qkv.weight", s_.width, n_q + 2 * n_kv);
      matrix(prefix + "ffn_up.weight", s_.width, 2 * s_.ffn_width);
    } else {
      matrix(prefix + "attn_q.weight", s_.width, n_q);
      matrix(prefix + "attn_k.weight", s_.width, n_kv);
      matrix(prefix + "attn_v.weight", s_.width, n_kv);
      matrix(prefix + "ffn_gate.weight", s_.width, s_.ffn_width);
      matrix(prefix + "ffn_up.weight", s_.width, s_.ffn_width);
    }
    if (architecture == "qwen2") {
      vector(prefix + "attn_q.bias", n_q, 0, 0.3);
      vector(prefix + "attn_k.bias", n_kv, 0, 0.3);
      vector(prefix + "attn_v.bias", n_kv, 0, 0.3);
    }
    if (is_gemma()) {
      vector(prefix + "post_attention_norm.weight", s_.width, s_.post_norm, 0.3);
      vector(prefix + "post_ffw_norm.weight", s_.width, s_.post_norm, 0.3);
    }
    if (architecture == "qwen3" || architecture == "gemma3") {
      norm(prefix + "attn_q_norm.weight", s_.head_dim);
      norm(prefix + "attn_k_norm.weight", s_.head_dim);
    }
    matrix(prefix + "attn_output.weight", n_q, s_.width);
    matrix(prefix + "ffn_down.weight", s_.ffn_width, s_.width);
  }

  void norm(const std::string& name, size_t n) { vector(name, n, 1, 0.1); }
  void vector(const std::string& name, size_t n, double mean, double deviation) {
    std::vector<float> values = random_.normals(n, deviation);
    for (float& value : values) value += static_cast<float>(mean);
    put(name, {n}, values);
  }
  void matrix(const std::string& name, size_t columns, size_t rows) {
    std::vector<float> values = random_.normals(columns * rows, 1 / std::sqrt(static_cast<double>(columns)));
    for (float& value : values) value = bf16_to_f32(f32_to_bf16(value));
    put(name, {columns, rows}, values);
  }
  void put(const std::string& name, const std::vector<uint64_t>& dims, const std::vector<float>& values) {
    Bytes bytes(values.size() * sizeof(float));
    std::memcpy(bytes.data(), values.data(), bytes.size());
    writer_.add_tensor(name, dims, TensorType::F32, bytes);
  }

  RandomGgufShape s_;
  Random random_;
  GgufWriter writer_;
};

}  // namespace quire::test
