// Soft-capped scores through the cache: exact and coded rows, few queries and many, whole reads, selections
// and masses.
#include <gtest/gtest.h>

#include "property/keep/scene.h"
#include "property/sparse/scene.h"
#include "property/windows/scene.h"

namespace quire::test {
namespace {

// Scores far beyond the cap: without it the outputs are others.
Prompt sharp_prompt(Geometry shape, size_t n, uint64_t seed, float softcap, float sharpness = 8) {
  shape.score_softcap = softcap;
  Prompt prompt(std::move(shape), n, seed);
  for (std::vector<float>& q : prompt.q) {
    for (float& x : q) x *= sharpness;
  }
  return prompt;
}

TEST(SoftCap, OfExactRowsEqualsDoublePrecision) {
  for (const size_t head_dim : {40, 64, 256}) {
    for (const float cap : {50.0f, 6.0f}) {
      Geometry shape = windowed(geometry(4, head_dim, {2, 1}), {90, 0});
      const Prompt prompt = sharp_prompt(shape, 330, head_dim, cap);
      const Outputs whole = run_prompt(prompt, Recipe::parse("f32"), 330);
      for (size_t layer = 0; layer < 2; ++layer)
        ASSERT_LE(largest_error(prompt, whole, layer, 13), 2e-5) << head_dim << " " << cap;
      for (const size_t step : {1, 12, 100}) {
        ASSERT_EQ(run_prompt(prompt, Recipe::parse("f32"), step, step == 100 ? 2 : 1), whole)
            << head_dim << " steps of " << step;
      }
      Prompt uncapped = prompt;
      uncapped.shape.score_softcap = 0;
      ASSERT_NE(run_prompt(uncapped, Recipe::parse("f32"), 330), whole);
    }
  }
}

// Straight from the codes and through opened pages. Capped scores are not further off than scores.
TEST(SoftCap, OfEveryCode) {
  for (const std::string& code : code_names()) {
    for (const size_t head_dim : {64, 256}) {
      if (head_dim == 256 && code != "turbo4" && code != "nested4" && code != "q8") continue;
      const Recipe recipe = coded_recipe(code, "sink=4,tail=10");
      const Prompt prompt = sharp_prompt(geometry(6, head_dim, {2}), 190, head_dim, 2.0f, 4);
      ASSERT_LE(last_step_error(prompt, recipe, 1), 4 * allowed_error(recipe))
          << recipe.text() << " " << head_dim;
      ASSERT_LE(last_step_error(prompt, recipe, 13), 4 * kExactError) << recipe.text() << " " << head_dim;
    }
  }
}

// Of all candidates those are kept that hold the share of the mass, which is one of capped scores.
TEST(SoftCap, MassesAreOfCappedScores) {
  for (const char* selection : {"mass=0.8,candidates=100%", "budget=100"}) {
    for (const float cap : {5.0f, 30.0f}) {
      WeightsPrompt prompt(6, 2, 128, 500, 8, 11);
      prompt.shape.score_softcap = cap;
      const Recipe recipe =
          Recipe::parse(std::string("k=nested4,v=q8,frame=plain,select=sign(") + selection + ")");
      const Decoded decoded = decode_last(prompt, recipe, {.measure_mass = true});
      const Scores scores(prompt, recipe);
      double mass = 0;
      for (size_t h = 0; h < 6; ++h) {
        const std::set<size_t> read = tokens_read(prompt, decoded, h / 3);
        const double held =
            std::exp(scores.log_sum(h, [&](size_t t) { return read.contains(t); }) - scores.log_sum(h));
        if (std::string(selection).starts_with("mass")) {
          EXPECT_GE(held, 0.75) << cap;
        }
        mass += held / 6;
      }
      EXPECT_NEAR(decoded.stats.mass_sum / static_cast<double>(decoded.stats.mass_count), mass, 0.02)
          << selection << " " << cap;
    }
  }
}

// Flat capped attention needs most rows for a share of the mass, and the sharp scores beneath it few.
TEST(SoftCap, AFlatCapReadsMoreRows) {
  const Recipe recipe = Recipe::parse("k=nested4,v=q8,frame=plain,select=sign(mass=0.8,candidates=100%)");
  WeightsPrompt prompt(6, 2, 128, 500, 8, 11);
  const size_t n_sharp = tokens_read(prompt, decode_last(prompt, recipe), 0).size();
  prompt.shape.score_softcap = 1;
  const size_t n_flat = tokens_read(prompt, decode_last(prompt, recipe), 0).size();
  EXPECT_GT(n_flat, 300u);
  EXPECT_LT(n_sharp, n_flat / 2);
}

// What observed queries gave to each row.
TEST(SoftCap, HeavyHittersAreWeighedCapped) {
  const Prompt prompt = sharp_prompt(geometry(4, 64, {2}), 150, 21, 3.0f);
  Keeper keeper(prompt, "h2o(k=f32,v=f32,budget=140)");
  keeper.grow(prompt, 100, 100);
  for (size_t kv = 0; kv < 2; ++kv) {
    std::vector<double> mass(100, 0.0);
    for (size_t token = 0; token < 100; ++token) {
      for (size_t h = 2 * kv; h < 2 * kv + 2; ++h) {
        std::vector<double> scores;
        double sum = 0;
        for (size_t t = 0; t <= token; ++t) {
          double score = 0;
          for (size_t d = 0; d < 64; ++d) {
            score += double{prompt.q[0][token * prompt.q_width() + h * 64 + d]} *
                     prompt.k[0][t * prompt.kv_width(0) + kv * 64 + d];
          }
          scores.push_back(std::exp(capped(score, 3)));
          sum += scores.back();
        }
        for (size_t t = 0; t <= token; ++t) mass[t] += scores[t] / sum;
      }
    }
    const HeadRows& rows = keeper.cache.dropping()->rows(0, kv);
    ASSERT_EQ(rows.positions.size(), 100u);
    for (size_t i = 0; i < 100; ++i)
      ASSERT_NEAR(rows.mass[i], mass[rows.positions[i]], 1e-4) << kv << " " << i;
  }
}

}  // namespace
}  // namespace quire::test
