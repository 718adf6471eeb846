// Logits of a model on the device, forced along a text, against those of the CPU with activations in f32.
#include <algorithm>
#include <cstdio>
#include <string_view>

#include "gpu/device_model_test.h"
#include "study/divergence.h"

namespace quire::test {
namespace {

// What lies between two rows of logits, over many tokens.
struct Distance {
  double kl_sum = 0;
  double kl_most = 0;
  int n = 0;
  int n_other_top = 0;    // of those whose most likely token leads by kMargin
  float most_margin = 0;  // of a token with another most likely one
  static constexpr float kMargin = 0.05f;

  void add(std::span<const float> reference, std::span<const float> other) {
    const double kl = kl_divergence(reference, other);
    kl_sum += kl;
    kl_most = std::max(kl_most, kl);
    ++n;
    const auto top = std::max_element(reference.begin(), reference.end());
    float second = -INFINITY;
    for (auto at = reference.begin(); at != reference.end(); ++at) {
      if (at != top) second = std::max(second, *at);
    }
    const auto other_top = std::max_element(other.begin(), other.end()) - other.begin();
    if (other_top == top - reference.begin()) return;
    most_margin = std::max(most_margin, *top - second);
    if (*top - second > kMargin) ++n_other_top;
  }
  double kl_mean() const { return kl_sum / n; }
};

class DeviceLogits : public DeviceModelTest {
 protected:
  static Distance force(const std::string& recipe, size_t n_prompt, size_t n_steps) {
    const gpu::BatchOptions batch_options = options(recipe, 1, n_prompt + n_steps);
    const auto device = batch(batch_options);
    Cache cache = engine().make_cache(batch_options.recipe);
    Workspace workspace;
    std::vector<float> logits(engine().config().vocabulary);
    Distance distance;
    const auto compare = [&](size_t n_last) {
      const size_t row = n_last - 1;
      engine().logits({&row, 1}, workspace, logits.data());
      distance.add(logits, device->logits(0));
    };
    // Of endless recipes in steps, as a Session does.
    const size_t most = batch_options.recipe.endless() ? 256 : n_prompt;
    size_t n_last = 0;
    for (size_t first = 0; first < n_prompt; first += n_last) {
      n_last = std::min(most, n_prompt - first);
      engine().forward(text(first, n_last), cache, workspace);
    }
    device->prefill(0, text(0, n_prompt));
    device->take_tokens();
    compare(n_last);
    for (size_t i = 0; i < n_steps; ++i) {
      engine().forward(text(n_prompt + i, 1), cache, workspace);
      device->set_token(0, text(n_prompt + i, 1)[0]);
      device->step();
      device->take_tokens();
      compare(1);
    }
    std::printf("%-28s %4d tokens behind %4zu: KL mean %.2e, most %.2e, other top-1 %d, by %.3f\n",
                recipe.c_str(), distance.n, n_prompt, distance.kl_mean(), distance.kl_most,
                distance.n_other_top, static_cast<double>(distance.most_margin));
    return distance;
  }
};

class ForcedLogits : public DeviceLogits, public testing::WithParamInterface<const char*> {};

// Long enough for pages to be coded while it is decoded, and for an index to leave rows out.
TEST_P(ForcedLogits, AreThoseOfTheCpu) {
  const Distance distance = force(GetParam(), 1100, 220);
  EXPECT_LE(distance.kl_mean(), 1e-3);
  // Where a rounded weight or row changes a code, a prediction may jump a little further than exact rows let
  // it.
  const Recipe recipe = Recipe::parse(GetParam());
  const bool is_rounded = recipe.coded || recipe.key_format == Format::kBF16;
  EXPECT_LE(distance.kl_most, is_rounded ? 1e-2 : 1e-3);
  // q4 is known to exceed the margin at one token of these (docs/results/cuda-model.md).
  const bool is_q4 = std::string_view(GetParam()) == "q4";
  EXPECT_LE(distance.n_other_top, is_q4 ? 1 : 0);
  EXPECT_LE(distance.most_margin, is_q4 ? 0.1f : 0.05f);
}

INSTANTIATE_TEST_SUITE_P(Recipes, ForcedLogits,
                         testing::Values("full", "k=bf16,v=bf16", "turbo4", "turbo3", "turbo2",
                                         "k=turbo4,v=turbo3", "q8", "q4", "kivi4", "quire",
                                         "quire(budget=100%)", "quire(mass=0.9)", "turbo4(sink=0,tail=128)",
                                         "k=turbo4,v=turbo3,keep=log", "k=f16,v=f16,keep=log",
                                         "k=nested4,v=nested3,keep=log,select=sign",
                                         "streaming(window=500)"));

// From the first token on, over the borders of the first pages and the first coding.
TEST_F(DeviceLogits, FromTheFirstTokenOn) {
  for (const char* recipe : {"full", "turbo4", "quire"}) {
    const Distance distance = force(recipe, 1, 260);
    EXPECT_LE(distance.kl_most, 2e-3) << recipe;
    EXPECT_EQ(distance.n_other_top, 0) << recipe;
  }
}

class SignVqLogits : public DeviceLogits, public testing::WithParamInterface<const char*> {};

// Two bits a number and statistics of the sequence's own tokens: what rounding weights and a prompt's
// activations to bf16 does comes back in codes. How far that is from a fault: DeviceShapes, where a text of
// equal weights and without a prompt stays within 3e-4.
TEST_P(SignVqLogits, AreNearTheCpu) {
  EXPECT_LE(force(GetParam(), 1100, 220).kl_mean(), 1e-2);
  EXPECT_LE(force(GetParam(), 400, 220).kl_mean(), 3e-3);
}

// A step far from the CPU's is one where rounding makes another page the last that is chosen.
TEST_F(DeviceLogits, OfQuestAreThoseOfTheCpu) {
  const Distance distance = force("quest", 1100, 220);
  EXPECT_LE(distance.kl_mean(), 1e-3);
  EXPECT_LE(distance.kl_most, 5e-2);
  EXPECT_EQ(distance.n_other_top, 0);
}

// Two bits a channel jump with the rounding of weights (kivi2 without a reserve is refused).
TEST_F(DeviceLogits, OfLogQuantAreNearTheCpu) { EXPECT_LE(force("logquant", 1100, 220).kl_mean(), 1e-2); }

INSTANTIATE_TEST_SUITE_P(Recipes, SignVqLogits,
                         testing::Values("selfindex", "selfindex(budget=100%)",
                                         "k=signvq,v=signvq,full_rows=64"));

}  // namespace
}  // namespace quire::test
