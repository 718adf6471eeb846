#include "engine/butler_file.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <limits>

#include "base/error.h"
#include "base/half.h"
#include "unit/temporary_folder.h"

namespace quire {
namespace {

constexpr std::string_view kModel = "0123456789abcdef";

ButlerGeometry small_butler() {
  ButlerGeometry g;
  g.n_layers = 7;  // the second producer serves two layers
  g.n_heads = 6;
  g.n_kv_heads = 2;
  g.head_dim = 8;
  g.width = 12;
  g.dim = 3;
  g.hidden = 5;
  return g;
}

ButlerWeights numbered(const ButlerGeometry& geometry) {
  ButlerWeights weights = ButlerWeights::zeros(geometry);
  float next = 0;
  const auto fill = [&](std::vector<float>& values) {
    for (float& value : values) value = bf16_to_f32(f32_to_bf16(next += 0.37f));
  };
  for (ButlerProducer& producer : weights.producers) {
    for (auto* values : {&producer.norm_weight, &producer.norm_bias, &producer.in, &producer.out})
      fill(*values);
  }
  for (auto& projection : weights.projections) fill(projection);
  return weights;
}

void expect_equal(const ButlerWeights& a, const ButlerWeights& b) {
  EXPECT_EQ(a.geometry, b.geometry);
  EXPECT_EQ(a.projections, b.projections);
  ASSERT_EQ(a.producers.size(), b.producers.size());
  for (size_t p = 0; p < a.producers.size(); ++p) {
    EXPECT_EQ(a.producers[p].norm_weight, b.producers[p].norm_weight);
    EXPECT_EQ(a.producers[p].norm_bias, b.producers[p].norm_bias);
    EXPECT_EQ(a.producers[p].in, b.producers[p].in);
    EXPECT_EQ(a.producers[p].out, b.producers[p].out);
  }
}

std::string error_of(std::span<const std::byte> bytes, const ButlerGeometry& model,
                     std::string_view fingerprint = kModel) {
  try {
    (void)decode_butler(SafetensorsFile::from_memory(bytes, "b.safetensors"), fingerprint, model);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

class ButlerFile : public test::TemporaryFolder {};

TEST_F(ButlerFile, KeepsAPredictor) {
  const ButlerWeights weights = numbered(small_butler());
  const std::string path = folder / "b.safetensors";
  for (const SafetensorsType type : {SafetensorsType::kF32, SafetensorsType::kBF16}) {
    save_butler(weights, kModel, path, type);
    ButlerGeometry model = small_butler();
    model.stride = model.dim = model.hidden = 1;  // the predictor's own numbers are the file's
    expect_equal(load_butler(path, kModel, model), weights);
  }
  EXPECT_THROW((void)load_butler(folder / "none", kModel, small_butler()), Error);
}

TEST_F(ButlerFile, AnotherModelIsRefused) {
  const std::vector<std::byte> bytes = encode_butler(numbered(small_butler()), kModel, SafetensorsType::kF32);
  ASSERT_EQ(error_of(bytes, small_butler()), "no error");
  EXPECT_NE(error_of(bytes, small_butler(), "fedcba9876543210").find("belongs to another model"),
            std::string::npos);
  const auto differs = [&](size_t ButlerGeometry::*field, const char* says) {
    ButlerGeometry model = small_butler();
    model.*field += 1;
    EXPECT_NE(error_of(bytes, model).find(says), std::string::npos) << error_of(bytes, model);
  };
  differs(&ButlerGeometry::n_layers, "a model whose n_layers is 7; this one's is 8");
  differs(&ButlerGeometry::n_heads, "a model whose n_heads is 6; this one's is 7");
  differs(&ButlerGeometry::n_kv_heads, "a model whose n_kv_heads is 2; this one's is 3");
  differs(&ButlerGeometry::head_dim, "a model whose head_dim is 8; this one's is 9");
  differs(&ButlerGeometry::width, "a model whose width is 12; this one's is 13");
}

// Metadata as a predictor's, with one entry changed.
SafetensorsWriter with(const std::string& key, const std::string& text) {
  std::map<std::string, std::string> entries = {{"format", "quire.butler"},
                                                {"version", "1"},
                                                {"model", std::string(kModel)},
                                                {"n_layers", "7"},
                                                {"n_heads", "6"},
                                                {"n_kv_heads", "2"},
                                                {"head_dim", "8"},
                                                {"width", "12"},
                                                {"stride", "4"},
                                                {"dim", "3"},
                                                {"hidden", "5"}};
  entries[key] = text;
  SafetensorsWriter writer;
  for (const auto& [name, value] : entries) writer.add_text(name, value);
  return writer;
}

TEST_F(ButlerFile, DamageIsRefused) {
  const auto says = [&](const std::string& key, const std::string& text, const char* what) {
    const std::string error = error_of(with(key, text).bytes(), small_butler());
    EXPECT_NE(error.find(what), std::string::npos) << error;
  };
  says("format", "gguf", "holds no predictor");
  says("version", "2", "another version than 1");
  says("hidden", "0", "hidden is no number from 1");
  says("hidden", "-5", "hidden is no number from 1");
  says("hidden", "5x", "hidden is no number from 1");
  says("hidden", "99999999999999999999999", "hidden is no number from 1");
  says("hidden", "1048576", "no tensor");
  says("stride", "4", "no tensor 'producer.0.norm_weight'");
}

TEST_F(ButlerFile, ValuesThatAreNoNumbersAreRefused) {
  ButlerWeights weights = numbered(small_butler());
  constexpr float kMark = 12345.5f;
  weights.producers[1].out[7] = kMark;
  std::vector<std::byte> bytes = encode_butler(weights, kModel, SafetensorsType::kF32);
  const auto mark = std::as_bytes(std::span(&kMark, 1));
  const auto at = std::search(bytes.begin(), bytes.end(), mark.begin(), mark.end());
  ASSERT_NE(at, bytes.end());
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::copy_n(std::as_bytes(std::span(&nan, 1)).begin(), sizeof nan, at);
  EXPECT_NE(error_of(bytes, small_butler()).find("producer.1.out holds a value that is no finite number"),
            std::string::npos);
}

// Also what rounding makes infinite.
TEST_F(ButlerFile, ValuesThatAreNoNumbersAreNotWritten) {
  const std::string path = folder / "b.safetensors";
  save_butler(numbered(small_butler()), kModel, path, SafetensorsType::kBF16);
  const auto refused = [&](float value, SafetensorsType type) {
    ButlerWeights weights = numbered(small_butler());
    weights.projections[5].back() = value;
    try {
      save_butler(weights, kModel, path, type);
      ADD_FAILURE() << value;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("layer.6.projection"), std::string::npos) << error.what();
    }
  };
  refused(std::numeric_limits<float>::quiet_NaN(), SafetensorsType::kBF16);
  refused(-std::numeric_limits<float>::infinity(), SafetensorsType::kF32);
  refused(std::numeric_limits<float>::max(), SafetensorsType::kBF16);
  refused(1e5f, SafetensorsType::kF16);
  expect_equal(load_butler(path, kModel, small_butler()), numbered(small_butler()));
  EXPECT_NO_THROW((void)encode_butler(numbered(small_butler()), kModel, SafetensorsType::kF16));
}

TEST_F(ButlerFile, FurtherMetadataIsKeptAndNotLookedAt) {
  const std::string path = folder / "b.safetensors";
  save_butler(numbered(small_butler()), kModel, path, SafetensorsType::kBF16, {{"steps", "12"}});
  EXPECT_EQ(SafetensorsFile::open(path).metadata().find("steps")->second, "12");
  expect_equal(load_butler(path, kModel, small_butler()), numbered(small_butler()));
}

TEST(ButlerGeometryOf, IsTheModels) {
  ModelConfig config;
  config.n_layers = 1;
  EXPECT_THROW((void)butler_geometry(config), Error);
  config.n_layers = 30;
  config.n_heads = 9;
  config.n_kv_heads = 3;
  config.head_dim = 64;
  config.width = 576;
  const ButlerGeometry geometry = butler_geometry(config);
  EXPECT_EQ(geometry.n_producers(), 8u);
  EXPECT_EQ(geometry.n_slots(7), 1u);
}

}  // namespace
}  // namespace quire
