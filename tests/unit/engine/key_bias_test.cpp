// A whole model with a large key bias: what coded keys do to its output, and what is measured of them.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "engine/calibrate.h"
#include "engine/calibration_text.h"
#include "unit/engine/tiny_model.h"

namespace quire {
namespace {

constexpr float kBias = 600 / 1.41421356f;  // in both channels of a pair
constexpr double kLargestDivergence = 0.05;

// The pairs of the file are neighbours: channels 2 pair and 2 pair + 1 of the first layer's only KV head.
test::Bytes biased_file(size_t pair) {
  test::TinyModel model;
  std::vector<float> bias(test::kTinyHeadDim, 0.0f);
  bias[2 * pair] = kBias;
  bias[2 * pair + 1] = -kBias;
  test::Bytes bytes(bias.size() * sizeof(float));
  std::memcpy(bytes.data(), bias.data(), bytes.size());
  model.writer.add_tensor("blk.0.attn_k.bias", {bias.size()}, TensorType::F32, bytes);
  return model.build();
}

struct Biased {
  explicit Biased(size_t pair)
      : bytes(biased_file(pair)), engine(GgufFile::from_memory(bytes, "biased.gguf"), {.n_threads = 2}) {}

  // Of the last 50 of 250 tokens, one by one, [token][vocabulary].
  std::vector<float> logits(Cache cache) {
    Workspace workspace;
    std::vector<int32_t> tokens;
    for (int i = 0; i < 250; ++i)
      tokens.push_back(static_cast<unsigned char>(calibration_text()[static_cast<size_t>(i)]));
    engine.forward({tokens.data(), 200}, cache, workspace);
    const size_t vocabulary = engine.config().vocabulary;
    std::vector<float> out(50 * vocabulary);
    const size_t row = 0;
    for (size_t i = 0; i < 50; ++i) {
      engine.forward({tokens.data() + 200 + i, 1}, cache, workspace);
      engine.logits({&row, 1}, workspace, out.data() + i * vocabulary);
    }
    return out;
  }

  // Mean divergence of the distributions of two sets of logits.
  double divergence(const std::vector<float>& exact, const std::vector<float>& coded) const {
    const size_t n = engine.config().vocabulary;
    double sum = 0;
    for (size_t row = 0; row < exact.size(); row += n) {
      const auto log_sum = [&](const std::vector<float>& logits) {
        double total = 0;
        for (size_t i = 0; i < n; ++i) total += std::exp(static_cast<double>(logits[row + i]));
        return std::log(total);
      };
      const double a = log_sum(exact);
      const double b = log_sum(coded);
      for (size_t i = row; i < row + n; ++i) {
        const double p = static_cast<double>(exact[i]) - a;
        sum += std::exp(p) * (p - (static_cast<double>(coded[i]) - b));
      }
    }
    return sum / static_cast<double>(exact.size() / n);
  }

  test::Bytes bytes;
  Engine engine;
  PagePool pool;
};

class KeyBiasOfModel : public testing::TestWithParam<size_t> {};

TEST_P(KeyBiasOfModel, IsKeptByCodedCaches) {
  Biased biased(GetParam());
  ASSERT_NE(biased.engine.model().key_biases(), nullptr);
  EXPECT_TRUE(biased.engine.model().key_biases()->heads[0].has_value());
  EXPECT_FALSE(biased.engine.model().key_biases()->heads[1].has_value());
  const std::vector<float> exact = biased.logits(biased.engine.make_cache(Recipe::parse("f32")));
  const Recipe recipe = Recipe::parse("k=turbo4,v=f16,frame=rotated,tail=10");
  const double framed = biased.divergence(exact, biased.logits(biased.engine.make_cache(recipe)));
  const double plain =
      biased.divergence(exact, biased.logits(Cache(recipe, biased.engine.config().geometry(), biased.pool)));
  EXPECT_LE(framed, kLargestDivergence);
  EXPECT_GT(plain, 10 * kLargestDivergence);
  RecordProperty("framed", std::to_string(framed));
  RecordProperty("plain", std::to_string(plain));
}

// Keys are measured as they are coded, and the recipe that uses the measure does as well.
TEST_P(KeyBiasOfModel, IsNotInTheCalibration) {
  Biased biased(GetParam());
  const std::string_view text = calibration_text().substr(0, 1000);
  const Calibration measured =
      measure_calibration(biased.engine, calibration_windows(biased.engine, {&text, 1}));
  for (size_t d = 0; d < test::kTinyHeadDim; ++d) {
    EXPECT_LT(std::fabs(measured.key_mean[d]), 10) << d;
    EXPECT_LT(measured.key_balance[d], 10) << d;
  }
  const std::vector<float> exact = biased.logits(biased.engine.make_cache(Recipe::parse("f32")));
  const double coded = biased.divergence(
      exact, biased.logits(Cache(
                 Recipe::parse("k=turbo4,v=f16,tail=10"), biased.engine.config().geometry(), biased.pool,
                 {std::make_shared<const Calibration>(measured), biased.engine.model().key_biases()})));
  EXPECT_LE(coded, kLargestDivergence);
  RecordProperty("coded", std::to_string(coded));
}

// The fastest pair, one that turns slowly, and the slowest.
INSTANTIATE_TEST_SUITE_P(Pairs, KeyBiasOfModel, testing::Values(0, 3, 7));

TEST(KeyBiases, AreNoneInAModelWithout) {
  const test::TinyEngine tiny;
  EXPECT_EQ(tiny.engine.model().key_biases(), nullptr);
}

}  // namespace
}  // namespace quire
