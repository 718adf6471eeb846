#include "engine/prediction.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "engine/session.h"
#include "model/config.h"
#include "unit/engine/tiny_model.h"

namespace quire {
namespace {

using test::GgufWriter;

constexpr Recipe kF16{Format::kF16, Format::kF16};
constexpr Recipe kMixed{Format::kF32, Format::kBF16};

GgufWriter odd_model() {
  GgufWriter writer;
  writer.add("general.architecture", "odd");
  writer.add<uint32_t>("odd.block_count", 4).add<uint32_t>("odd.embedding_length", 576);
  writer.add<uint32_t>("odd.attention.head_count", 12);
  return writer;
}

KvShape read_shape(const GgufWriter& writer) {
  const test::Bytes bytes = writer.build();
  return KvShape::read(GgufFile::from_memory(bytes, "odd.gguf"));
}

TEST(KvShape, AgreesWithTheGeometryOfAModel) {
  const test::Bytes bytes = test::TinyModel().build();
  const GgufFile file = GgufFile::from_memory(bytes, "tiny.gguf");
  const KvShape shape = KvShape::read(file);
  const Geometry geometry = ModelConfig::read(file).geometry();
  for (const Recipe& recipe : {kF16, kMixed}) {
    EXPECT_EQ(shape.token_bytes(recipe), geometry.token_bytes(recipe));
    for (const size_t n : {0, 1, 64, 65, 200})
      EXPECT_EQ(shape.cache_bytes(recipe, n), geometry.cache_bytes(recipe, n));
  }
}

TEST(KvShape, HeadsPerLayerAndOwnLengths) {
  GgufWriter writer = odd_model();
  writer.add_array<int32_t>("odd.attention.head_count_kv", {3, 1, 3, 0});
  writer.add<uint32_t>("odd.attention.key_length", 96).add<uint32_t>("odd.attention.value_length", 64);
  const KvShape shape = read_shape(writer);
  EXPECT_EQ(shape.token_bytes(kF16), 7u * (96 + 64) * 2);
  EXPECT_EQ(shape.token_bytes(kMixed), 7u * (96 * 4 + 64 * 2));
  EXPECT_EQ(shape.cache_bytes(kF16, 65), 128u * 7 * (96 + 64) * 2);
}

TEST(KvShape, Defaults) {
  const KvShape shape = read_shape(odd_model());
  EXPECT_EQ(shape.n_kv_heads, (std::vector<uint64_t>{12, 12, 12, 12}));
  EXPECT_EQ(shape.key_length, 48u);
  EXPECT_EQ(shape.value_length, 48u);
}

TEST(KvShape, RefusesWhatContradictsItself) {
  GgufWriter wrong_size = odd_model();
  wrong_size.add_array<uint32_t>("odd.attention.head_count_kv", {3, 1});
  EXPECT_THROW(read_shape(wrong_size), Error);
  GgufWriter negative = odd_model();
  negative.add_array<int32_t>("odd.attention.head_count_kv", {3, -1, 3, 3});
  EXPECT_THROW(read_shape(negative), Error);
  GgufWriter many_layers;
  many_layers.add("general.architecture", "odd").add<uint32_t>("odd.block_count", 0xffffffff);
  EXPECT_THROW(read_shape(many_layers), Error);
}

TEST(KvShape, OverflowIsAnError) {
  GgufWriter writer = odd_model();
  writer.add<uint64_t>("odd.attention.key_length", uint64_t{1} << 62);
  const KvShape shape = read_shape(writer);
  EXPECT_THROW(shape.token_bytes(kF16), Error);
  GgufWriter fits = odd_model();
  EXPECT_THROW(read_shape(fits).cache_bytes(kF16, uint64_t{1} << 60), Error);
}

TEST(PredictMemory, WeightsAreWhatTheModelHolds) {
  test::TinyEngine tiny;
  const GgufFile file = GgufFile::from_memory(tiny.bytes, "tiny.gguf");
  const MemoryPrediction prediction = predict_memory(file, 100, kF16);
  EXPECT_EQ(prediction.weight_bytes, tiny.engine.model().weight_bytes());
  EXPECT_EQ(prediction.kv_bytes, 128 * test::kTinyTokenBytes);
  EXPECT_GT(prediction.workspace_bytes, 0u);
  EXPECT_EQ(trained_context_tokens(file), test::kTinyContext);
}

constexpr const char* kCoded[] = {"turbo4(frame=rotated)",
                                  "turbo2(frame=rotated,sink=0,tail=0)",
                                  "k=turbo4,v=turbo3,tail=100,frame=rotated",
                                  "kivi2",
                                  "k=f16,v=q8,sink=16",
                                  "quest",
                                  "k=bf16,v=f32,select=doublesparse",
                                  "k=f16,v=q8,select=quest(page=8)"};

TEST(KvShape, OfCodedRecipesAgreesWithTheGeometry) {
  const test::Bytes bytes = test::TinyModel().build();
  const GgufFile file = GgufFile::from_memory(bytes, "tiny.gguf");
  const KvShape shape = KvShape::read(file);
  const Geometry geometry = ModelConfig::read(file).geometry();
  for (const char* text : kCoded) {
    const Recipe recipe = Recipe::parse(text);
    EXPECT_EQ(shape.token_bytes(recipe), geometry.token_bytes(recipe)) << text;
    for (const size_t n : {0, 1, 63, 64, 65, 127, 128, 129, 192, 1000, 100000}) {
      EXPECT_EQ(shape.cache_bytes(recipe, n), geometry.cache_bytes(recipe, n)) << text << " " << n;
      EXPECT_EQ(shape.peak_bytes(recipe, n), geometry.peak_bytes(recipe, 0, n, 0)) << text << " " << n;
    }
  }
}

TEST(KvShape, WhatCannotBeCodedIsRefused) {
  GgufWriter longer = odd_model();
  longer.add<uint32_t>("odd.attention.key_length", 96).add<uint32_t>("odd.attention.value_length", 64);
  const Recipe recipe = Recipe::parse("q8");
  EXPECT_THROW(read_shape(longer).token_bytes(recipe), Error);
  EXPECT_THROW(read_shape(longer).cache_bytes(recipe, 10), Error);
  GgufWriter large = odd_model();
  large.add<uint32_t>("odd.attention.key_length", 257);
  EXPECT_THROW(read_shape(large).peak_bytes(recipe, 10), Error);
  EXPECT_THROW(read_shape(odd_model()).cache_bytes(recipe, uint64_t{1} << 58), Error);
}

// What is predicted is what a run takes, and a budget of the peak is enough, and no byte less.
TEST(PredictMemory, IsWhatARunTakes) {
  for (const char* text : {"full", "bf16", kCoded[0], kCoded[1], kCoded[2], kCoded[3], kCoded[4]}) {
    for (const size_t n : {1, 63, 64, 65, 129, 192, 250}) {
      const Recipe recipe = Recipe::parse(text);
      const test::Bytes bytes = test::TinyModel().build();
      const GgufFile file = GgufFile::from_memory(bytes, "tiny.gguf");
      const MemoryPrediction prediction = predict_memory(file, n, recipe);
      const std::vector<int32_t> tokens(n, 65);
      Engine enough(file, {.n_threads = 2, .kv_budget_bytes = prediction.kv_peak_bytes});
      Session session(enough, {.recipe = recipe});
      session.prefill(tokens);
      EXPECT_EQ(session.cache().size_bytes(), prediction.kv_bytes) << text << " " << n;
      EXPECT_EQ(enough.pool().used_bytes(), prediction.kv_bytes) << text << " " << n;
      Engine less(file, {.n_threads = 2, .kv_budget_bytes = prediction.kv_peak_bytes - 1});
      Session refused(less, {.recipe = recipe});
      EXPECT_THROW(refused.prefill(tokens), Error) << text << " " << n;
      EXPECT_EQ(less.pool().used_bytes(), 0u);
      EXPECT_EQ(less.pool().reserved_bytes(), 0u) << "refused before anything was allocated";
    }
  }
}

}  // namespace
}  // namespace quire
