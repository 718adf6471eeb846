// Rows read by share of the attention mass, and the measured share.
#include <gtest/gtest.h>

#include "property/sparse/scene.h"

namespace quire::test {
namespace {

constexpr double kSlack = 0.03;  // of logarithms: levels and bytes are rounded

Recipe recipe_of(const std::string& keys, const std::string& selection) {
  return Recipe::parse("k=" + keys + ",v=q8,frame=plain,select=sign(" + selection + ")");
}

// Log probability down to which a head has to read coded rows for the share of the mass; +inf: none.
double least_needed(const Scores& scores, size_t h, double share) {
  const double all = scores.log_sum(h);
  std::vector<double> coded;
  double sum = 0;
  for (size_t t = 0; t < scores.n_tokens; ++t) {
    const double p = scores.of_head[h][t] - all;
    scores.is_coded(t) ? coded.push_back(p) : void(sum += std::exp(p));
  }
  std::sort(coded.rbegin(), coded.rend());
  double least = INFINITY;
  for (size_t i = 0; i < coded.size() && sum < share; ++i) sum += std::exp(least = coded[i]);
  return least;
}

class SparseMass : public testing::TestWithParam<double> {};

// All rows are candidates: every head of the group has the share asked for, and no row is read that no head
// needed for it.
TEST_P(SparseMass, IsHeldAndNotGrosslyMore) {
  const double share = GetParam();
  for (const double sharpness : {1.0, 3.0, 8.0}) {
    for (const char* keys : {"nested4", "nested2"}) {
      if (share != 0.8 && std::string(keys) == "nested2") continue;
      const WeightsPrompt prompt(6, 2, 128, 900, sharpness, 11);
      const Recipe recipe = recipe_of(keys, "mass=" + std::to_string(share) + ",candidates=100%");
      const Decoded decoded = decode_last(prompt, recipe);
      const Scores scores(prompt, recipe);
      const double error = std::string(ops().name) != "scalar" ? 0.045 * sharpness : 1e-3;
      for (size_t kv_head = 0; kv_head < 2; ++kv_head) {
        const std::set<size_t> read = tokens_read(prompt, decoded, kv_head);
        std::set<size_t> wanted;
        for (size_t h = 3 * kv_head; h < 3 * kv_head + 3; ++h) {
          const double all = scores.log_sum(h);
          const double held = std::exp(scores.log_sum(h, [&](size_t t) { return read.contains(t); }) - all);
          EXPECT_GE(held, share - 0.01 - error * 0.1) << keys << " " << sharpness << " head " << h;
          const double least =
              least_needed(scores, h, share + (1 - share) * (0.01 + 2 * error)) - std::log(2.0) / 8 - kSlack;
          for (size_t t = 0; t < scores.n_tokens; ++t) {
            if (scores.is_coded(t) && scores.of_head[h][t] - all >= least - 2 * error) wanted.insert(t);
          }
        }
        for (const size_t t : read) {
          if (scores.is_coded(t)) {
            ASSERT_TRUE(wanted.contains(t)) << keys << " " << sharpness << " token " << t;
          }
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Shares, SparseMass, testing::Values(0.05, 0.5, 0.8, 0.9, 0.95, 0.99));

// Never more rows than candidates, however much mass is asked for.
TEST(SparseMassLimits, CandidatesAreTheMost) {
  const WeightsPrompt prompt(6, 2, 128, 1500, 0.5, 3);
  const Recipe recipe = recipe_of("nested4", "mass=0.99,candidates=20%");
  const Decoded decoded = decode_last(prompt, recipe);
  for (size_t kv_head = 0; kv_head < 2; ++kv_head) {
    const size_t n = tokens_read(prompt, decoded, kv_head).size();
    EXPECT_LE(n, 300u);
    EXPECT_GE(n, 290u) << "flat attention needs them all";
  }
}

// What is measured is what the codes say, averaged over heads and layers.
TEST(SparseMassMeasured, IsTheShareOfTheRowsRead) {
  for (const char* selection : {"budget=200", "budget=10%", "budget=300,candidates=1", "mass=0.7",
                                "budget=300,queries=mean", "budget=50"}) {
    for (const double sharpness : {std::string(selection).size() % 2 == 0 ? 1.0 : 4.0}) {
      const WeightsPrompt prompt(6, 2, 128, 1000, sharpness, 21);
      const Recipe recipe = recipe_of("nested4", selection);
      const Decoded decoded = decode_last(prompt, recipe, {.measure_mass = true});
      const Scores scores(prompt, recipe);
      ASSERT_EQ(decoded.stats.mass_count, 6 * prompt.shape.n_layers);
      double mass = 0;
      for (size_t h = 0; h < 6; ++h) {
        const std::set<size_t> read = tokens_read(prompt, decoded, h / 3);
        mass +=
            std::exp(scores.log_sum(h, [&](size_t t) { return read.contains(t); }) - scores.log_sum(h)) / 6;
      }
      EXPECT_NEAR(decoded.stats.mass_sum / static_cast<double>(decoded.stats.mass_count), mass,
                  2e-3 * (1 + sharpness))
          << selection << " " << sharpness;
      const Decoded unmeasured = decode_last(prompt, recipe);
      EXPECT_EQ(unmeasured.out, decoded.out) << "measuring changes nothing";
      EXPECT_EQ(unmeasured.stats.mass_count, 0u);
    }
  }
}

}  // namespace
}  // namespace quire::test
