// Folders in Hugging Face form, as open_model() gives them: names, shapes, values, and what is refused by
// name.
#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "unit/temporary_folder.h"
#include "unit/weights/folder_writer.h"
#include "weights/open_model.h"

namespace quire::test {
namespace {

class ModelFolder : public TemporaryFolder {
 protected:
  std::string error_of() const {
    try {
      (void)open_model(folder.string());
    } catch (const Error& error) {
      std::string text = error.what();
      EXPECT_EQ(text.find('\n'), std::string::npos) << text;
      EXPECT_LT(text.size(), 600u);
      const std::string path = folder.string();
      for (size_t at = 0; (at = text.find(path)) != std::string::npos;) text.replace(at, path.size(), "DIR");
      return text;
    }
    return "no error";
  }

  // Writes `shapes` in two shards with an index.
  void write_shards(const Shapes& shapes, Json index = {}) const {
    Shapes halves[2];
    const char* names[] = {"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"};
    size_t i = 0;
    for (const auto& [name, shape] : shapes) {
      const size_t half = i++ * 2 / shapes.size();
      halves[half][name] = shape;
      if (!index.contains("weight_map") || !index["weight_map"].contains(name))
        index["weight_map"][name] = names[half];
    }
    for (size_t half = 0; half < 2; ++half) write_file(folder / names[half], safetensors_of(halves[half]));
    write_file(folder / "model.safetensors.index.json", index.dump());
  }
};

std::vector<float> values_of(const GgufFile& file, const std::string& name) {
  const TensorInfo& tensor = file.tensor(name);
  std::vector<float> values(tensor.row_length() * tensor.n_rows());
  dequantize_row(tensor.type, tensor.data, values.data(), values.size());
  return values;
}

TEST_F(ModelFolder, LlamaBecomesTheKeysAndTensorsOfGguf) {
  write_folder(folder, tiny_config("llama"), tiny_shapes("llama"), SafetensorsType::kBF16);
  const GgufFile file = open_model(folder.string());
  EXPECT_EQ(file.form(), "Hugging Face folder");
  EXPECT_EQ(file.get_string("general.architecture"), "llama");
  EXPECT_EQ(file.get_string("general.name"), folder.filename().string());
  EXPECT_EQ(file.get_uint("general.file_type"), 32u);
  EXPECT_TRUE(file.get_bool(kHalfSplitKey));
  EXPECT_EQ(file.get_uint("llama.block_count"), 2u);
  EXPECT_EQ(file.get_uint("llama.attention.head_count_kv"), 2u);
  EXPECT_EQ(file.get_uint("llama.attention.key_length"), 4u);
  EXPECT_EQ(file.get_uint("llama.vocab_size"), 10u);
  EXPECT_EQ(file.tensors().size(), 2u * 9 + 3);
  const TensorInfo& q = file.tensor("blk.1.attn_q.weight");
  EXPECT_EQ(q.shape, (Shape{8, 16}));  // the row length first
  EXPECT_EQ(q.type, TensorType::BF16);
  EXPECT_EQ(values_of(file, "blk.1.attn_q.weight"), tiny_values({16, 8}));
  EXPECT_EQ(file.tensor("output.weight").shape, (Shape{8, 10}));
  EXPECT_NE(file.find_tensor("blk.0.ffn_norm.weight"), nullptr);
  file.drop_pages(q);
  EXPECT_EQ(values_of(file, "blk.1.attn_q.weight"), tiny_values({16, 8}));
}

TEST_F(ModelFolder, EveryFamilyIsOpened) {
  struct Case {
    const char* type;
    const char* architecture;
    size_t n_tensors;
    const char* tensor;
  };
  for (const Case& each :
       {Case{"mistral", "llama", 21, "blk.0.attn_q.weight"}, Case{"qwen2", "qwen2", 27, "blk.1.attn_k.bias"},
        Case{"qwen3", "qwen3", 25, "blk.1.attn_k_norm.weight"},
        Case{"phi3", "phi3", 15, "blk.0.attn_qkv.weight"},
        Case{"gemma2", "gemma2", 25, "blk.0.post_ffw_norm.weight"},
        Case{"gemma3_text", "gemma3", 29, "blk.1.post_attention_norm.weight"}}) {
    write_folder(folder, tiny_config(each.type), tiny_shapes(each.type));
    ASSERT_EQ(error_of(), "no error") << each.type;
    const GgufFile file = open_model(folder.string());
    EXPECT_EQ(file.get_string("general.architecture"), each.architecture);
    EXPECT_EQ(file.tensors().size(), each.n_tensors) << each.type;
    EXPECT_NE(file.find_tensor(each.tensor), nullptr) << each.tensor;
    EXPECT_EQ(file.find(kHalfSplitKey) != nullptr, each.type == std::string("mistral"));
  }
}

TEST_F(ModelFolder, NormsOfGemmaGetTheirOne) {
  write_folder(folder, tiny_config("gemma2"), tiny_shapes("gemma2"), SafetensorsType::kBF16);
  const GgufFile file = open_model(folder.string());
  for (const char* name : {"output_norm.weight", "blk.0.attn_norm.weight", "blk.1.post_ffw_norm.weight",
                           "blk.1.ffn_norm.weight", "blk.0.post_attention_norm.weight"}) {
    EXPECT_EQ(file.tensor(name).type, TensorType::F32);
    EXPECT_EQ(values_of(file, name), tiny_values({8}, 2)) << name;
  }
  EXPECT_EQ(values_of(file, "blk.0.attn_v.weight"), tiny_values({8, 8}));
}

TEST_F(ModelFolder, TiedOutputs) {
  Json config = tiny_config("llama");
  config["tie_word_embeddings"] = true;
  Shapes shapes = tiny_shapes("llama");
  write_folder(folder, config, shapes);  // an output that is the embedding again
  EXPECT_EQ(open_model(folder.string()).find_tensor("output.weight"), nullptr);
  SafetensorsWriter writer;
  for (const auto& [name, shape] : shapes) {
    writer.add(name, shape, tiny_values(shape, name == "lm_head.weight" ? 2 : 1), SafetensorsType::kF32);
  }
  write_file(folder / "model.safetensors", writer.bytes());
  EXPECT_EQ(error_of(),
            "DIR/model.safetensors: tensor 'lm_head.weight' differs from the embedding, to which config.json "
            "ties it "
            "(tie_word_embeddings)");
  shapes.erase("lm_head.weight");
  write_folder(folder, config, shapes);
  EXPECT_EQ(open_model(folder.string()).find_tensor("output.weight"), nullptr);
  config["tie_word_embeddings"] = false;
  write_folder(folder, config, shapes);
  EXPECT_EQ(error_of(), "DIR: the tensor 'lm_head.weight' is missing");
}

TEST_F(ModelFolder, EveryTensorIsAccountedFor) {
  const Json config = tiny_config("llama");
  Shapes shapes = tiny_shapes("llama");
  shapes["model.layers.0.self_attn.rotary_emb.inv_freq"] = {2};
  write_folder(folder, config, shapes);
  EXPECT_EQ(error_of(), "no error");
  shapes["model.layers.2.mlp.up_proj.weight"] = {12, 8};
  write_folder(folder, config, shapes);
  EXPECT_EQ(error_of(),
            "DIR/model.safetensors: tensor 'model.layers.2.mlp.up_proj.weight' is not part of a model of "
            "this type");
  shapes.erase("model.layers.2.mlp.up_proj.weight");
  shapes["model.layers.1.mlp.up_proj.weight"] = {8, 12};
  write_folder(folder, config, shapes);
  EXPECT_EQ(error_of(),
            "DIR/model.safetensors: tensor 'model.layers.1.mlp.up_proj.weight' is 8 x 12, where config.json "
            "wants 12 x 8");
  shapes.erase("model.layers.1.mlp.up_proj.weight");
  write_folder(folder, config, shapes);
  EXPECT_EQ(error_of(), "DIR: the tensor 'model.layers.1.mlp.up_proj.weight' is missing");
}

TEST_F(ModelFolder, TypesOfTensors) {
  write_folder(folder, tiny_config("llama"), {});
  std::string header = "{", data;
  for (const auto& [name, shape] : tiny_shapes("llama")) {
    const size_t n = tiny_values(shape).size() * 4;
    header += (header.size() > 1 ? ",\"" : "\"") + name + R"(":{"dtype":"I32","shape":)" +
              Json(shape).dump() + R"(,"data_offsets":[)" + std::to_string(data.size()) + "," +
              std::to_string(data.size() + n) + "]}";
    data.append(n, '\0');
  }
  header += "}";
  write_file(folder / "model.safetensors",
             ByteWriter().put<uint64_t>(header.size()).put_text(header).put_text(data).bytes());
  EXPECT_EQ(error_of(),
            "DIR/model.safetensors: tensor 'model.embed_tokens.weight' is of the type I32; F32, F16 and BF16 "
            "are read");
}

TEST_F(ModelFolder, Gemma3WithVisionLeavesTheTowerOut) {
  Json text = tiny_config("gemma3_text");
  text.erase("model_type");
  text.erase("tie_word_embeddings");
  for (const char* prefix : {"language_model.model.", "model.language_model."}) {
    Shapes shapes = {{"vision_tower.layers.0.weight", {3, 3}}, {"multi_modal_projector.norm", {5}}};
    for (const auto& [name, shape] : tiny_shapes("gemma3_text")) {
      const bool is_head = name == "lm_head.weight";
      const bool is_old = std::string(prefix).starts_with("language_model.");
      shapes[is_head ? (is_old ? "language_model." + name : name) : prefix + name.substr(6)] = shape;
    }
    write_folder(folder, {{"model_type", "gemma3"}, {"text_config", text}, {"vision_config", {{"a", 1}}}},
                 shapes);
    const GgufFile file = open_model(folder.string());
    EXPECT_EQ(file.tensors().size(), 2u * 13 + 2) << prefix;  // tied, as usual for Gemma
    ASSERT_EQ(file.notes().size(), 1u);
    EXPECT_NE(file.notes()[0].find("the vision tower (2 tensors) is left out"), std::string::npos);
  }
  write_folder(folder, tiny_config("llama"), [] {
    Shapes shapes = tiny_shapes("llama");
    shapes["vision_tower.x"] = {1};
    return shapes;
  }());
  EXPECT_NE(error_of().find("'vision_tower.x' is not part of a model of this type"), std::string::npos);
}

TEST_F(ModelFolder, ShardsAreOneModel) {
  const Shapes shapes = tiny_shapes("qwen2");
  write_folder(folder, tiny_config("qwen2"), shapes);
  const std::string whole = open_model(folder.string()).fingerprint();
  std::filesystem::remove(folder / "model.safetensors");
  write_shards(shapes);
  const GgufFile file = open_model(folder.string());
  EXPECT_EQ(file.tensors().size(), 27u);
  EXPECT_EQ(file.fingerprint(), whole);
}

TEST_F(ModelFolder, ShardsAndIndexMustAgree) {
  const Shapes shapes = tiny_shapes("llama");
  write_folder(folder, tiny_config("llama"), {});
  std::filesystem::remove(folder / "model.safetensors");
  const std::string first = "model-00001-of-00002.safetensors", second = "model-00002-of-00002.safetensors";
  write_shards(shapes, {{"weight_map", {{"lm_head.weight", second}}}});  // it is in the first
  EXPECT_EQ(error_of(), "DIR/" + first +
                            ": tensor 'lm_head.weight' is here, but the index says that it is in '" + second +
                            "'");
  write_shards(shapes, {{"weight_map", {{"more", first}}}});
  EXPECT_EQ(error_of(), "DIR/" + first + ": tensor 'more' is missing, which the index says is here");
  write_shards(shapes, {{"weight_map", {{"more", "model-3.safetensors"}}}});
  EXPECT_EQ(error_of(), "DIR: 'model-3.safetensors' is missing of the 3 files that the index names");
  write_shards(shapes);
  Shapes extra = tiny_shapes("llama");
  extra["more"] = {1};
  write_file(folder / first, safetensors_of(extra));
  EXPECT_NE(error_of().find("the index says that it is in"), std::string::npos);
  write_file(folder / first, safetensors_of({{"more", {1}}}));
  EXPECT_EQ(error_of(),
            "DIR/" + first + ": tensor 'more' is not in the index 'model.safetensors.index.json'");
  for (const char* name :
       {"../model.safetensors", "/etc/x.safetensors", "a/b.safetensors", "x.bin", ".safetensors"}) {
    write_shards(shapes, {{"weight_map", {{"lm_head.weight", name}}}});
    EXPECT_NE(error_of().find("is not the name of a safetensors file beside the index"), std::string::npos)
        << name;
  }
  write_file(folder / "model.safetensors.index.json",
             std::string(R"({"weight_map":{"a":"a.safetensors","a":"b"}})"));
  EXPECT_EQ(error_of(), "DIR/model.safetensors.index.json: the key 'a' is there twice");
  write_file(folder / "model.safetensors.index.json", std::string(R"({"weight_map":{}})"));
  EXPECT_EQ(error_of(), "DIR/model.safetensors.index.json: the index has no tensors");
  write_file(folder / "model.safetensors.index.json", std::string("{}"));
  EXPECT_EQ(error_of(), "DIR/model.safetensors.index.json: weight_map is missing");
}

TEST_F(ModelFolder, RopeFactorsBecomeTensors) {
  Json config = tiny_config("llama");
  config["rope_scaling"] = {{"rope_type", "llama3"},
                            {"factor", 8.0},
                            {"low_freq_factor", 1.0},
                            {"high_freq_factor", 4.0},
                            {"original_max_position_embeddings", 16}};
  write_folder(folder, config, tiny_shapes("llama"));
  const GgufFile llama = open_model(folder.string());
  // Waves of 6.28 and 628 tokens: between 4 and 16, and above 16.
  const std::vector<float> factors = values_of(llama, "rope_freqs.weight");
  const double smooth = (16 / (2 * M_PI) - 1) / 3;
  ASSERT_EQ(factors.size(), 2u);
  EXPECT_FLOAT_EQ(factors[0], static_cast<float>(1 / ((1 - smooth) / 8 + smooth)));
  EXPECT_EQ(factors[1], 8);
  EXPECT_EQ(llama.find("llama.rope.scaling.type"), nullptr);

  config = tiny_config("phi3");
  config["original_max_position_embeddings"] = 16;
  config["rope_scaling"] = {{"type", "su"}, {"long_factor", {2.0, 3.5}}, {"short_factor", {1.0, 1.25}}};
  write_folder(folder, config, tiny_shapes("phi3"));
  const GgufFile phi = open_model(folder.string());
  EXPECT_EQ(values_of(phi, "rope_factors_long.weight"), (std::vector<float>{2, 3.5}));
  EXPECT_EQ(values_of(phi, "rope_factors_short.weight"), (std::vector<float>{1, 1.25}));
  EXPECT_EQ(phi.get_string("phi3.rope.scaling.type"), "longrope");
  EXPECT_FLOAT_EQ(static_cast<float>(phi.get_float("phi3.rope.scaling.attn_factor")),
                  static_cast<float>(std::sqrt(1 + std::log(4.0) / std::log(16.0))));

  config.erase("original_max_position_embeddings");  // transformers then takes it to be 4096
  write_folder(folder, config, tiny_shapes("phi3"));
  EXPECT_EQ(open_model(folder.string()).get_uint("phi3.rope.scaling.original_context_length"), 4096u);
}

TEST_F(ModelFolder, ChatTemplatesOfAllPlaces) {
  write_folder(folder, tiny_config("llama"), tiny_shapes("llama"));
  const char* key = "tokenizer.chat_template";
  EXPECT_EQ(open_model(folder.string()).find(key), nullptr);
  write_file(
      folder / "tokenizer_config.json",
      std::string(
          R"({"chat_template":[{"name":"tool_use","template":"T"},{"name":"default","template":"D"}]})"));
  EXPECT_EQ(open_model(folder.string()).get_string(key), "D");
  write_file(folder / "tokenizer_config.json", std::string(R"({"chat_template":"{{ x }}"})"));
  EXPECT_EQ(open_model(folder.string()).get_string(key), "{{ x }}");
  write_file(folder / "chat_template.jinja", std::string("{{ y }}\n"));
  EXPECT_EQ(open_model(folder.string()).get_string(key), "{{ y }}\n");
}

TEST_F(ModelFolder, OtherFolders) {
  EXPECT_EQ(error_of(), "DIR: this folder is no model, as it has no config.json");
  write_file(folder / "a.gguf", std::string("GGUF"));
  EXPECT_EQ(
      error_of(),
      "DIR: this folder is no model, as it has no config.json; it has GGUF files, of which one can be given: "
      "'a.gguf'");
  std::filesystem::remove(folder / "a.gguf");
  write_file(folder / "config.json", tiny_config("llama").dump());
  EXPECT_EQ(error_of(),
            "DIR: this folder is no model, as it has no model.safetensors and no index of shards");
  write_file(folder / "pytorch_model.bin", std::string("x"));
  EXPECT_NE(error_of().find("'pytorch_model.bin', and only safetensors files are read"), std::string::npos);
  write_file(folder / "model.safetensors",
             std::string("version https://git-lfs.github.com/spec/v1\noid sha256:0\n"));
  EXPECT_NE(error_of().find("model.safetensors: this is a Git LFS pointer"), std::string::npos);
  EXPECT_THROW((void)open_model((folder / "model.safetensors").string()), Error);
}

}  // namespace
}  // namespace quire::test
