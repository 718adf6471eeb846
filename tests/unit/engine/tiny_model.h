// A whole model file of 100 KB in memory: byte-level vocabulary, two layers, random weights.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "engine/random.h"
#include "unit/engine/byte_alphabet.h"
#include "unit/weights/gguf_writer.h"

namespace quire::test {

constexpr size_t kTinyWidth = 32;
constexpr size_t kTinyHidden = 64;
constexpr size_t kTinyHeads = 2;
constexpr size_t kTinyKvHeads = 1;
constexpr size_t kTinyHeadDim = 16;
constexpr size_t kTinyLayers = 2;
constexpr size_t kTinyContext = 256;
constexpr int32_t kTinyEnd = 257;  // "<|im_end|>"

// Bytes a token takes in f16, all layers.
constexpr size_t kTinyTokenBytes = kTinyLayers * kTinyKvHeads * kTinyHeadDim * 2 * 2;

class TinyModel {
 public:
  explicit TinyModel(uint64_t seed = 1, size_t context_tokens = kTinyContext, size_t n_layers = kTinyLayers)
      : random_(seed), context_tokens_(context_tokens), n_layers_(n_layers) {
    add_metadata();
    add_vocabulary();
    add_matrix("token_embd.weight", kTinyWidth, 259);
    add_norm("output_norm.weight");
    for (size_t layer = 0; layer < n_layers_; ++layer) add_layer("blk." + std::to_string(layer) + ".");
  }

  // To change before build(); an entry twice is refused, so what is added must be new.
  GgufWriter writer;

  Bytes build() const { return writer.build(); }

 private:
  void add_metadata() {
    writer.add("general.architecture", "llama");
    const auto add = [&](const char* key, size_t value) {
      writer.add<uint32_t>(std::string("llama.") + key, static_cast<uint32_t>(value));
    };
    add("block_count", n_layers_);
    add("context_length", context_tokens_);
    add("embedding_length", kTinyWidth);
    add("feed_forward_length", kTinyHidden);
    add("attention.head_count", kTinyHeads);
    add("attention.head_count_kv", kTinyKvHeads);
    writer.add<float>("llama.attention.layer_norm_rms_epsilon", 1e-5f);
  }

  void add_vocabulary() {
    std::vector<std::string> tokens;
    int n_other = 0;
    for (int byte = 0; byte < 256; ++byte) tokens.push_back(alphabet_character(byte, n_other));
    std::vector<int32_t> types(256, kTokenNormal);
    for (const char* control : {"<|im_start|>", "<|im_end|>", "<|endoftext|>"}) {
      tokens.emplace_back(control);
      types.push_back(kTokenControl);
    }
    writer.add("tokenizer.ggml.model", "gpt2");
    writer.add("tokenizer.ggml.pre", "smollm");
    writer.add_array("tokenizer.ggml.tokens", tokens);
    writer.add_array("tokenizer.ggml.token_type", types);
    writer.add_array("tokenizer.ggml.merges", std::vector<std::string>{});
    writer.add<uint32_t>("tokenizer.ggml.eos_token_id", kTinyEnd);
  }

  void add_layer(const std::string& prefix) {
    add_norm(prefix + "attn_norm.weight");
    add_matrix(prefix + "attn_q.weight", kTinyWidth, kTinyHeads * kTinyHeadDim);
    add_matrix(prefix + "attn_k.weight", kTinyWidth, kTinyKvHeads * kTinyHeadDim);
    add_matrix(prefix + "attn_v.weight", kTinyWidth, kTinyKvHeads * kTinyHeadDim);
    add_matrix(prefix + "attn_output.weight", kTinyHeads * kTinyHeadDim, kTinyWidth);
    add_norm(prefix + "ffn_norm.weight");
    add_matrix(prefix + "ffn_gate.weight", kTinyWidth, kTinyHidden);
    add_matrix(prefix + "ffn_up.weight", kTinyWidth, kTinyHidden);
    add_matrix(prefix + "ffn_down.weight", kTinyHidden, kTinyWidth);
  }

  void add_norm(const std::string& name) {
    add_floats(name, {kTinyWidth}, std::vector<float>(kTinyWidth, 1.0f));
  }

  void add_matrix(const std::string& name, size_t columns, size_t rows) {
    std::vector<float> values(columns * rows);
    for (float& value : values) value = static_cast<float>(random_.uniform() - 0.5);
    add_floats(name, {columns, rows}, values);
  }

  void add_floats(const std::string& name, const std::vector<uint64_t>& shape,
                  const std::vector<float>& values) {
    Bytes bytes(values.size() * sizeof(float));
    std::memcpy(bytes.data(), values.data(), bytes.size());
    writer.add_tensor(name, shape, TensorType::F32, bytes);
  }

  Random random_;
  size_t context_tokens_;
  size_t n_layers_;
};

// A file, kept in memory, and an engine on it.
struct TinyEngine {
  explicit TinyEngine(const EngineOptions& options = {.n_threads = 2}, size_t context_tokens = kTinyContext)
      : bytes(TinyModel(1, context_tokens).build()),
        engine(GgufFile::from_memory(bytes, "tiny.gguf"), options) {}

  Bytes bytes;
  Engine engine;
};

// Tokens of bytes to be read, and of a text to be measured.
inline std::vector<int32_t> tiny_prompt(size_t n) {
  std::vector<int32_t> tokens(n);
  for (size_t i = 0; i < n; ++i) tokens[i] = static_cast<int32_t>((i * 37 + 11) % 256);
  return tokens;
}
inline std::vector<int32_t> tiny_text(size_t n) {
  std::vector<int32_t> tokens(n);
  for (size_t i = 0; i < n; ++i) tokens[i] = static_cast<int32_t>((i * i + 3 * i) % 256);
  return tokens;
}

}  // namespace quire::test
