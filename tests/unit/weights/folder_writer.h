// Writes small model folders in Hugging Face form: config.json and safetensors of made-up values.
#pragma once

#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "unit/weights/gguf_writer.h"
#include "weights/safetensors.h"

namespace quire::test {

using Json = nlohmann::json;

inline void write_file(const std::filesystem::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

inline void write_file(const std::filesystem::path& path, const Bytes& bytes) {
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
}

// Two layers, width 8, 4 query heads over 2 KV heads of 4 dims, FFN 12, 10 tokens.
inline Json tiny_config(const std::string& model_type) {
  return {{"model_type", model_type},
          {"num_hidden_layers", 2},
          {"hidden_size", 8},
          {"intermediate_size", 12},
          {"num_attention_heads", 4},
          {"num_key_value_heads", 2},
          {"head_dim", 4},
          {"vocab_size", 10},
          {"max_position_embeddings", 64},
          {"rms_norm_eps", 1e-5},
          {"tie_word_embeddings", false}};
}

using Shape = std::vector<uint64_t>;
using Shapes = std::map<std::string, Shape>;

// What transformers saves for tiny_config(model_type), in its own names.
inline Shapes tiny_shapes(const std::string& model_type) {
  Shapes shapes = {
      {"model.embed_tokens.weight", {10, 8}}, {"model.norm.weight", {8}}, {"lm_head.weight", {10, 8}}};
  const bool is_phi = model_type == "phi3";
  const bool is_gemma = model_type.starts_with("gemma");
  for (int layer = 0; layer < 2; ++layer) {
    const auto add = [&](const std::string& name, const Shape& shape) {
      shapes["model.layers." + std::to_string(layer) + "." + name] = shape;
    };
    for (const char* name : {"input_layernorm", "post_attention_layernorm"})
      add(std::string(name) + ".weight", {8});
    if (is_gemma) {
      add("pre_feedforward_layernorm.weight", {8});
      add("post_feedforward_layernorm.weight", {8});
    }
    if (is_phi) {
      add("self_attn.qkv_proj.weight", {32, 8});
      add("mlp.gate_up_proj.weight", {24, 8});
    } else {
      add("self_attn.q_proj.weight", {16, 8});
      add("self_attn.k_proj.weight", {8, 8});
      add("self_attn.v_proj.weight", {8, 8});
      add("mlp.gate_proj.weight", {12, 8});
      add("mlp.up_proj.weight", {12, 8});
    }
    if (model_type == "qwen2") {
      add("self_attn.q_proj.bias", {16});
      add("self_attn.k_proj.bias", {8});
      add("self_attn.v_proj.bias", {8});
    }
    if (model_type == "qwen3" || model_type == "gemma3_text") {
      add("self_attn.q_norm.weight", {4});
      add("self_attn.k_norm.weight", {4});
    }
    add("self_attn.o_proj.weight", {8, 16});
    add("mlp.down_proj.weight", {8, 12});
  }
  return shapes;
}

// Value i of a tensor is `first` + i / 8, which all types hold exactly for small counts.
inline std::vector<float> tiny_values(const Shape& shape, float first = 1) {
  uint64_t n = 1;
  for (const uint64_t dim : shape) n *= dim;
  std::vector<float> values(n);
  for (size_t i = 0; i < n; ++i) values[i] = first + static_cast<float>(i) / 8;
  return values;
}

inline Bytes safetensors_of(const Shapes& shapes, SafetensorsType type = SafetensorsType::kF32) {
  SafetensorsWriter writer;
  writer.add_text("format", "pt");
  for (const auto& [name, shape] : shapes) writer.add(name, shape, tiny_values(shape), type);
  return writer.bytes();
}

inline void write_folder(const std::filesystem::path& folder, const Json& config, const Shapes& shapes,
                         SafetensorsType type = SafetensorsType::kF32) {
  std::filesystem::create_directories(folder);
  write_file(folder / "config.json", config.dump());
  write_file(folder / "model.safetensors", safetensors_of(shapes, type));
}

}  // namespace quire::test
