// Conversion: which tensor becomes which type, order of rows, metadata, and that files come whole or not at
// all.
#include "weights/convert.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <fstream>
#include <sstream>

#include "base/error.h"
#include "unit/temporary_folder.h"
#include "unit/weights/folder_writer.h"
#include "weights/gguf_header.h"
#include "weights/open_model.h"
#include "weights/quantize.h"

namespace quire::test {
namespace {

class Convert : public TemporaryFolder {
 protected:
  std::string out() const { return (folder / "out.gguf").string(); }

  GgufFile convert(const GgufFile& model, std::optional<TensorType> type, int n_threads = 2) {
    const Conversion conversion(model, type);
    Team team(n_threads);
    conversion.write(out(), team, {});
    notes = conversion.notes();
    EXPECT_EQ(std::filesystem::file_size(out()), conversion.file_bytes());
    return GgufFile::open(out());
  }

  std::string text_of_out() const {
    std::ostringstream text;
    text << std::ifstream(out(), std::ios::binary).rdbuf();
    return text.str();
  }

  size_t n_files() const {
    return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(folder), {}));
  }

  std::vector<std::string> notes;
};

std::vector<float> values_of(const TensorInfo& tensor) {
  std::vector<float> values(tensor.row_length() * tensor.n_rows());
  dequantize_row(tensor.type, tensor.data, values.data(), values.size());
  return values;
}

Bytes f32_bytes(size_t n) {
  Bytes bytes(n * 4);
  for (size_t i = 0; i < n; ++i) {
    const float value = std::sin(static_cast<float>(i)) + static_cast<float>(i % 7) / 8;
    std::memcpy(bytes.data() + 4 * i, &value, 4);
  }
  return bytes;
}

// A norm, matrices of 256, 64 and 40 columns, embedding and output.
Bytes model_bytes(bool with_output = true) {
  GgufWriter writer;
  writer.add("general.architecture", "llama").add<uint32_t>("general.file_type", 0).add("llama.x", "y");
  writer.add<uint16_t>("split.count", 1).add_array<int32_t>("numbers", {1, -2, 3});
  writer.add_array("words", std::vector<std::string>{"a", "", "bc"});
  writer.add_tensor("token_embd.weight", {256, 6}, TensorType::F32, f32_bytes(256 * 6));
  writer.add_tensor("blk.0.attn_norm.weight", {256}, TensorType::F32, f32_bytes(256));
  writer.add_tensor("blk.0.attn_q.weight", {256, 5}, TensorType::F32, f32_bytes(256 * 5));
  writer.add_tensor("blk.0.ffn_up.weight", {64, 3}, TensorType::F32, f32_bytes(64 * 3));
  writer.add_tensor("blk.0.ffn_down.weight", {40, 7}, TensorType::F32, f32_bytes(40 * 7));
  if (with_output) writer.add_tensor("output.weight", {256, 6}, TensorType::F32, f32_bytes(256 * 6));
  return writer.build();
}

TEST_F(Convert, AsIsKeepsEveryByteOfTensors) {
  const Bytes bytes = model_bytes();
  const GgufFile model = GgufFile::from_memory(bytes, "model.gguf");
  const GgufFile copy = convert(model, std::nullopt);
  EXPECT_TRUE(notes.empty());
  ASSERT_EQ(copy.tensors().size(), model.tensors().size());
  for (size_t i = 0; i < model.tensors().size(); ++i) {
    const TensorInfo& from = model.tensors()[i];
    const TensorInfo& to = copy.tensors()[i];
    EXPECT_EQ(to.name, from.name);
    EXPECT_EQ(to.type, from.type);
    EXPECT_EQ(to.shape, from.shape);
    EXPECT_EQ(Bytes(to.data, to.data + to.size_bytes), Bytes(from.data, from.data + from.size_bytes));
  }
  EXPECT_EQ(copy.metadata().size(), model.metadata().size() - 1);  // without split.count
  EXPECT_EQ(copy.get_string("llama.x"), "y");
  EXPECT_EQ(copy.get_int_array("numbers"), (std::vector<int64_t>{1, -2, 3}));
  EXPECT_EQ(copy.get_string_array("words"), (std::vector<std::string_view>{"a", "", "bc"}));
  EXPECT_EQ(copy.get_uint("general.file_type"), 0u);
  const std::string first = text_of_out();
  convert(copy, std::nullopt, 1);
  EXPECT_EQ(text_of_out(), first);
}

TEST_F(Convert, TypesByTheUsualRule) {
  const Bytes bytes = model_bytes();
  const GgufFile model = GgufFile::from_memory(bytes, "model.gguf");
  const auto type_in = [](const GgufFile& file, const char* name) { return file.tensor(name).type; };
  const GgufFile q4 = convert(model, TensorType::Q4_0);
  EXPECT_EQ(type_in(q4, "token_embd.weight"), TensorType::Q4_0);
  EXPECT_EQ(type_in(q4, "output.weight"), TensorType::Q6_K);
  EXPECT_EQ(type_in(q4, "blk.0.attn_norm.weight"), TensorType::F32);
  EXPECT_EQ(type_in(q4, "blk.0.attn_q.weight"), TensorType::Q4_0);
  EXPECT_EQ(type_in(q4, "blk.0.ffn_down.weight"), TensorType::F16);
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_EQ(notes[0],
            "'blk.0.ffn_down.weight' is written as F16, as blocks of 32 values do not divide the rows");
  EXPECT_EQ(q4.get_uint("general.file_type"), 2u);
  EXPECT_EQ(q4.get_uint("general.quantization_version"), 2u);
  const GgufFile k = convert(model, TensorType::Q4_K);
  EXPECT_EQ(type_in(k, "blk.0.attn_q.weight"), TensorType::Q4_K);
  EXPECT_EQ(type_in(k, "blk.0.ffn_up.weight"), TensorType::Q5_0);
  EXPECT_EQ(type_in(k, "blk.0.ffn_down.weight"), TensorType::F16);
  EXPECT_EQ(notes.size(), 2u);
  EXPECT_EQ(type_in(convert(model, TensorType::Q5_K), "blk.0.ffn_up.weight"), TensorType::Q5_1);
  EXPECT_EQ(type_in(convert(model, TensorType::Q6_K), "blk.0.ffn_up.weight"), TensorType::Q8_0);
  const GgufFile q8 = convert(model, TensorType::Q8_0);
  EXPECT_EQ(type_in(q8, "output.weight"), TensorType::Q8_0);
  const GgufFile f16 = convert(model, TensorType::F16);
  EXPECT_EQ(type_in(f16, "output.weight"), TensorType::F16);
  EXPECT_EQ(f16.find("general.quantization_version"), nullptr);
  const Bytes tied_bytes = model_bytes(false);
  const GgufFile tied = GgufFile::from_memory(tied_bytes, "model.gguf");
  EXPECT_EQ(type_in(convert(tied, TensorType::Q4_0), "token_embd.weight"), TensorType::Q6_K);
}

TEST_F(Convert, BlocksAreThoseOfRowsAndDoNotDependOnThreads) {
  const Bytes bytes = model_bytes();
  const GgufFile model = GgufFile::from_memory(bytes, "model.gguf");
  for (const TensorType type :
       {TensorType::F16, TensorType::BF16, TensorType::Q8_0, TensorType::Q4_1, TensorType::Q5_1}) {
    const GgufFile one = convert(model, type, 1);
    const std::string first = text_of_out();
    const TensorInfo& tensor = one.tensor("blk.0.attn_q.weight");
    const std::vector<float> values = values_of(model.tensor("blk.0.attn_q.weight"));
    Bytes blocks(row_bytes(type, values.size()));
    ASSERT_TRUE(quantize_row(type, values.data(), blocks.data(), values.size()));
    EXPECT_EQ(Bytes(tensor.data, tensor.data + tensor.size_bytes), blocks) << tensor_type_name(type);
    convert(model, type, 3);
    EXPECT_EQ(text_of_out(), first) << tensor_type_name(type);
  }
}

TEST_F(Convert, QuantizingTwiceIsTold) {
  const Bytes bytes = model_bytes();
  const GgufFile q8 = convert(GgufFile::from_memory(bytes, "model.gguf"), TensorType::Q8_0);
  convert(q8, TensorType::Q4_0);
  ASSERT_EQ(notes.size(), 2u);  // the other is about ffn_down, which stays F16
  EXPECT_EQ(notes[1],
            "4 tensors were quantized before and are so again; a conversion of the original loses less");
  convert(q8, TensorType::F32);
  EXPECT_TRUE(notes.empty());
}

// Row h * 4 + d of GGUF's interleaved order: the pairs (0, 1), (2, 3) are rows (0, 2), (1, 3) of the halves.
TEST_F(Convert, QAndKOfLlamaBecomeInterleaved) {
  const auto with_biases = [](Shapes shapes) {
    shapes["model.layers.0.self_attn.q_proj.bias"] = {16};
    shapes["model.layers.0.self_attn.k_proj.bias"] = {8};
    shapes["model.layers.0.self_attn.v_proj.bias"] = {8};
    shapes["model.layers.0.self_attn.o_proj.bias"] = {8};
    for (const char* name : {"q", "k", "v", "o"}) {
      const std::string stem = std::string("self_attn.") + name + "_proj.bias";
      shapes["model.layers.1." + stem] = shapes["model.layers.0." + stem];
    }
    return shapes;
  };
  Json config = tiny_config("llama");
  config["attention_bias"] = true;
  write_folder(folder / "model", config, with_biases(tiny_shapes("llama")));
  const GgufFile model = open_model((folder / "model").string());
  const GgufFile file = convert(model, std::nullopt);
  EXPECT_EQ(file.find(kHalfSplitKey), nullptr);
  for (const char* name : {"blk.1.attn_q", "blk.0.attn_k"}) {
    const std::string weight = std::string(name) + ".weight";
    const std::vector<float> from = values_of(model.tensor(weight));
    const std::vector<float> to = values_of(file.tensor(weight));
    const std::vector<float> bias = values_of(file.tensor(std::string(name) + ".bias"));
    const std::vector<float> bias_from = values_of(model.tensor(std::string(name) + ".bias"));
    for (size_t row = 0; row < bias.size(); ++row) {
      const size_t source = row / 4 * 4 + std::array<size_t, 4>{0, 2, 1, 3}[row % 4];
      EXPECT_EQ(bias[row], bias_from[source]);
      for (size_t i = 0; i < 8; ++i) ASSERT_EQ(to[row * 8 + i], from[source * 8 + i]) << name << row;
    }
  }
  EXPECT_EQ(values_of(file.tensor("blk.0.attn_v.weight")), values_of(model.tensor("blk.0.attn_v.weight")));
  EXPECT_EQ(values_of(file.tensor("blk.0.attn_v.bias")), values_of(model.tensor("blk.0.attn_v.bias")));
}

TEST_F(Convert, OtherFamiliesKeepTheirRowsAndVectorsBecomeF32) {
  write_folder(folder / "model", tiny_config("qwen2"), tiny_shapes("qwen2"), SafetensorsType::kBF16);
  const GgufFile model = open_model((folder / "model").string());
  const GgufFile file = convert(model, std::nullopt);
  EXPECT_EQ(file.tensor("blk.0.attn_q.weight").type, TensorType::BF16);
  EXPECT_EQ(file.tensor("blk.0.attn_q.bias").type, TensorType::F32);
  EXPECT_EQ(file.tensor("blk.0.attn_norm.weight").type, TensorType::F32);
  for (const TensorInfo& tensor : model.tensors()) {
    EXPECT_EQ(values_of(file.tensor(tensor.name)), values_of(tensor)) << tensor.name;
  }
}

TEST_F(Convert, ASplitModelBecomesOne) {
  for (uint16_t part = 0; part < 2; ++part) {
    GgufWriter writer;
    if (part == 0) writer.add("general.architecture", "llama");
    writer.add<uint16_t>("split.no", part)
        .add<uint16_t>("split.count", 2)
        .add<int32_t>("split.tensors.count", 2);
    writer.add_tensor("w" + std::to_string(part), {4, 2}, TensorType::F32, f32_bytes(8));
    write_file(folder / ("m-0000" + std::to_string(part + 1) + "-of-00002.gguf"), writer.build());
  }
  const GgufFile model = open_model((folder / "m-00002-of-00002.gguf").string());
  const GgufFile whole = convert(model, std::nullopt);
  EXPECT_EQ(whole.tensors().size(), 2u);
  EXPECT_EQ(whole.metadata().size(), 1u);
  EXPECT_EQ(whole.fingerprint(), model.fingerprint());
}

TEST_F(Convert, AQuantizedVectorIsNotReordered) {
  GgufWriter writer;
  writer.add("general.architecture", "llama").add("quire.rope.half_split", true);
  writer.add<uint32_t>("llama.attention.head_count", 2).add<uint32_t>("llama.attention.head_count_kv", 2);
  writer.add_tensor("blk.0.attn_q.bias", {64}, TensorType::Q8_0, Bytes(68));
  const Bytes bytes = writer.build();
  try {
    Conversion(GgufFile::from_memory(bytes, "memory"), TensorType::F16);
    FAIL() << "it should be refused";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("'blk.0.attn_q.bias' is of type Q8_0"), std::string::npos)
        << error.what();
  }
}

TEST_F(Convert, WhatGoesWrongLeavesNothing) {
  GgufWriter writer;
  writer.add("general.architecture", "llama");
  Bytes values = f32_bytes(64);
  const float bad = std::nanf("");
  std::memcpy(values.data() + 40 * 4, &bad, 4);
  writer.add_tensor("w.weight", {32, 2}, TensorType::F32, values);
  const Bytes bytes = writer.build();
  const GgufFile model = GgufFile::from_memory(bytes, "model.gguf");
  try {
    convert(model, TensorType::Q8_0);
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(
        error.what(),
        "model.gguf: tensor 'w.weight' has a value that Q8_0 cannot hold (not finite, or beyond 65504)");
  }
  EXPECT_EQ(n_files(), 0u);
  struct Stop {};
  Team team(1);
  EXPECT_THROW(Conversion(model, std::nullopt).write(out(), team, [](double) { throw Stop{}; }), Stop);
  EXPECT_EQ(n_files(), 0u);
}

// A limit on the size of files stands for a full disk.
TEST_F(Convert, AFullDiskEndsWithASentence) {
  const Bytes bytes = model_bytes();
  const GgufFile model = GgufFile::from_memory(bytes, "model.gguf");
  write_file(folder / "out.gguf", std::string("before"));
  rlimit before;
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{4096, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  std::string what;
  try {
    Team team(1);
    Conversion(model, std::nullopt).write(out(), team, {});
  } catch (const Error& error) {
    what = error.what();
  }
  ::setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, old_handler);
  EXPECT_EQ(what, "cannot write " + out() + ": File too large");
  EXPECT_EQ(text_of_out(), "before");
  EXPECT_EQ(n_files(), 1u);
}

}  // namespace
}  // namespace quire::test
