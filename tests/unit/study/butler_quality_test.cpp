#include "study/butler_quality.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "unit/study/butler_scene.h"

namespace quire {
namespace {

ButlerQuality quality_of(const ButlerLayout& layout, const std::vector<float>& parameters,
                         ButlerPooling pooling) {
  Random random(9);
  ButlerMeter meter(layout, {2, 4, true}, pooling, test::run_items);
  meter.add(test::normal_example(layout.geometry(), 150, random), parameters.data());
  return meter.quality();
}

// Scores that are no numbers are the worst of all: what is chosen has an order all the same.
TEST(ButlerMeter, ChoosesAlsoAmongScoresThatAreNoNumbers) {
  const ButlerLayout layout(test::small_butler());
  Random random(4);
  std::vector<float> parameters = test::normals(random, layout.size(), 0.5);
  parameters[layout.projection(2)] = std::numeric_limits<float>::quiet_NaN();
  for (const ButlerPooling pooling :
       {ButlerPooling::kMax, ButlerPooling::kNormalisedMax, ButlerPooling::kNormalisedSum}) {
    const ButlerQuality quality = quality_of(layout, parameters, pooling);
    for (const auto& layer : quality.layers) {
      for (const ButlerScore& score : layer) {
        EXPECT_TRUE(score.recall >= 0 && score.recall <= 1) << score.recall;
        EXPECT_TRUE(score.mass > 0 && score.mass <= score.oracle_mass * (1 + 1e-6)) << score.mass;
      }
    }
  }
}

}  // namespace
}  // namespace quire
