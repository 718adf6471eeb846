// The forward pass against double precision over tiny models of every tensor type and shape.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "property/model/reference_forward.h"
#include "property/model/run_model.h"

namespace quire::test {
namespace {

constexpr double kPreciseError = 1e-4;
constexpr double kFastError = 1e-3;  // activations in 16 bits per 32 values

// Largest error of the logits relative to the largest logit.
double relative_error(const std::vector<float>& got, const std::vector<Vector>& wanted) {
  double worst = 0;
  double largest = 0;
  for (size_t token = 0; token < wanted.size(); ++token) {
    for (size_t i = 0; i < wanted[token].size(); ++i) {
      const double error = std::fabs(got[token * wanted[token].size() + i] - wanted[token][i]);
      worst = std::isnan(error) ? 1e9 : std::max(worst, error);
      largest = std::max(largest, std::fabs(wanted[token][i]));
    }
  }
  return worst / largest;
}

// Models whose logits hardly vary from token to token would hide mistakes.
void expect_lively(const std::vector<Vector>& logits) {
  double widest = 0;
  for (size_t i = 0; i < logits[0].size(); ++i) {
    const auto less = [&](const Vector& a, const Vector& b) { return a[i] < b[i]; };
    const auto [low, high] = std::minmax_element(logits.begin(), logits.end(), less);
    widest = std::max(widest, (*high)[i] - (*low)[i]);
  }
  EXPECT_GT(widest, 1.0);
}

void check(const TinySpec& spec, const std::string& name, size_t n_tokens = 24) {
  const TinyFile file(spec);
  const std::vector<int32_t> tokens = random_tokens(n_tokens, spec.vocabulary, 3);
  const std::vector<Vector> wanted = ReferenceForward(spec, file.gguf).logits(tokens);
  expect_lively(wanted);
  const Model precise = load(file.gguf, Precision::kPrecise);
  EXPECT_LE(relative_error(run_model(precise, tokens, n_tokens), wanted), kPreciseError) << name;
  EXPECT_LE(relative_error(run_model(precise, tokens, 1), wanted), kPreciseError) << name << ", one by one";
  const Model fast = load(file.gguf, Precision::kFast);
  EXPECT_LE(relative_error(run_model(fast, tokens, n_tokens), wanted), kFastError) << name << ", fast";
  EXPECT_LE(relative_error(run_model(fast, tokens, 1), wanted), kFastError) << name << ", fast, one by one";
}

class ForwardOf : public testing::TestWithParam<TensorType> {};

TEST_P(ForwardOf, EqualsDoublePrecision) {
  TinySpec spec;
  spec.type = GetParam();
  check(spec, "tied");
  spec.untied = true;
  spec.vocabulary = 50;
  check(spec, "untied");
}

std::string type_name(const testing::TestParamInfo<TensorType>& info) { return tensor_type_name(info.param); }

INSTANTIATE_TEST_SUITE_P(EveryType, ForwardOf, testing::ValuesIn(kTensorTypes), type_name);

class ForwardOfFamily : public testing::TestWithParam<ModelFamily> {};

TEST_P(ForwardOfFamily, EqualsDoublePrecision) {
  for (const TensorType type : {TensorType::F32, TensorType::Q8_0, TensorType::Q4_K}) {
    TinySpec spec;
    spec.architecture = GetParam().architecture;
    spec.n_layers = 3;  // one that sees all where each third does
    spec.type = type;
    check(spec, spec.architecture);
    spec.untied = true;
    spec.rope_base = 50000;
    spec.rope_dims = 48;
    spec.query_scale = 0.2;
    spec.logit_softcap = 20;
    check(spec, spec.architecture + ", other numbers");
  }
}

TEST_P(ForwardOfFamily, WithWindowsAndCappedScores) {
  for (const size_t period : {2, 3}) {
    TinySpec spec;
    spec.architecture = GetParam().architecture;
    spec.n_layers = 3;
    spec.window_tokens = 7;
    spec.window_period = period;
    spec.score_softcap = 3;
    spec.rope_scale = 4;
    check(spec, spec.architecture + " with windows");
  }
}

TEST_P(ForwardOfFamily, DoesNotDependOnTheSteps) {
  TinySpec spec;
  spec.architecture = GetParam().architecture;
  spec.type = TensorType::Q8_0;
  spec.window_tokens = 70;
  const std::vector<int32_t> tokens = random_tokens(150, spec.vocabulary, 5);
  const TinyFile file(spec);
  const Model model = load(file.gguf, Precision::kFast);
  const std::vector<float> whole = run_model(model, tokens, 150, 1, "full");
  for (const size_t step : {1, 33, 64}) EXPECT_EQ(run_model(model, tokens, step, 2, "full"), whole) << step;
}

INSTANTIATE_TEST_SUITE_P(Every, ForwardOfFamily, testing::ValuesIn(families().begin(), families().end()),
                         [](const auto& family) { return std::string(family.param.architecture); });

// Rows of a folder lie half a rotation apart, and mean the same as the permuted ones of a file.
TEST(Forward, HalfSplitRows) {
  TinySpec spec;
  spec.half_split = true;
  spec.biases = true;
  check(spec, "half-split");
  spec.rope_dims = 20;
  check(spec, "half-split, partial rotation");
}

TEST(Forward, QueryHeadRatios) {
  for (const TensorType type : {TensorType::F32, TensorType::Q8_0}) {
    for (const size_t ratio : {1, 3, 7}) {
      TinySpec spec;
      spec.type = type;
      spec.n_kv_heads = 2;
      spec.n_heads = 2 * ratio;
      spec.width = 96;
      spec.ffn_width = 160;
      check(spec, "ratio " + std::to_string(ratio));
    }
  }
}

TEST(Forward, HeadSizes) {
  for (const size_t head_dim : {40, 64, 80, 100}) {
    TinySpec spec;
    spec.head_dim = head_dim;
    spec.width = 4 * head_dim;
    spec.ffn_width = 100;  // no multiple of 32: only float matrices allow it
    check(spec, "head_dim " + std::to_string(head_dim));
  }
  TinySpec quantized;
  quantized.type = TensorType::Q4_1;
  quantized.head_dim = 40;
  quantized.n_heads = 8;
  quantized.width = 320;
  check(quantized, "head_dim 40, Q4_1");
}

TEST(Forward, RopeVariants) {
  for (const TensorType type : {TensorType::F16, TensorType::Q8_0}) {
    TinySpec spec;
    spec.type = type;
    spec.rope_base = 500000;
    check(spec, "base");
    spec.rope_factors = true;
    check(spec, "factors");
    spec.rope_scale = 4;
    check(spec, "factors and linear scaling");
    spec.rope_dims = 20;
    check(spec, "partial rotation");
    spec.rope_factors = false;
    spec.rope_base = 0;
    check(spec, "partial rotation and linear scaling");
  }
}

TEST(Forward, Biases) {
  for (const TensorType type : {TensorType::F32, TensorType::Q8_0}) {
    TinySpec spec;
    spec.type = type;
    spec.biases = true;
    check(spec, "biases");
    spec.rope_dims = 20;
    spec.without = {"blk.0.attn_q.bias", "blk.1.attn_k.bias"};
    check(spec, "some of them, partial rotation");
  }
}

TEST(Forward, EveryBiasMatters) {
  const std::vector<int32_t> tokens = random_tokens(24, 40, 3);
  TinySpec spec;
  spec.biases = true;
  const std::vector<float> all = run_model(load(TinyFile(spec).gguf, Precision::kPrecise), tokens, 24);
  for (const char* name : {"blk.0.attn_q.bias", "blk.0.attn_k.bias", "blk.1.attn_v.bias"}) {
    spec.without = {name};
    EXPECT_NE(run_model(load(TinyFile(spec).gguf, Precision::kPrecise), tokens, 24), all) << name;
  }
}

// The variants differ from each other: each key reaches the angles.
TEST(Forward, EveryRopeKeyMatters) {
  const std::vector<int32_t> tokens = random_tokens(24, 40, 3);
  std::vector<std::vector<float>> outputs;
  for (int variant = 0; variant < 5; ++variant) {
    TinySpec spec;
    if (variant == 1) spec.rope_base = 500000;
    if (variant == 2) spec.rope_factors = true;
    if (variant == 3) spec.rope_scale = 4;
    if (variant == 4) spec.rope_dims = 32;
    outputs.push_back(run_model(load(TinyFile(spec).gguf, Precision::kPrecise), tokens, 24));
    for (int other = 0; other < variant; ++other)
      EXPECT_NE(outputs[other], outputs[variant]) << other << variant;
  }
}

// A file that gives a factor without a type, or by its older key, means linear scaling (U13: never ignore).
TEST(Forward, LinearScalingByItsOtherKeys) {
  const std::vector<int32_t> tokens = random_tokens(24, 40, 3);
  TinySpec linear;
  linear.rope_scale = 4;
  const std::vector<float> wanted = run_model(load(TinyFile(linear).gguf, Precision::kPrecise), tokens, 24);
  for (const char* key : {"llama.rope.scaling.factor", "llama.rope.scale_linear"}) {
    TinySpec spec;
    spec.extra = [&](GgufWriter& file) { file.add(key, 4.0f); };
    EXPECT_EQ(run_model(load(TinyFile(spec).gguf, Precision::kPrecise), tokens, 24), wanted) << key;
  }
}

}  // namespace
}  // namespace quire::test
