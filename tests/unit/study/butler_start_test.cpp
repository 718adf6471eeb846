#include "study/butler_start.h"

#include <gtest/gtest.h>

#include "unit/study/butler_scene.h"

namespace quire {
namespace {

// A fit to examples whose keys have something added to them, in all the same.
ButlerWeights fitted(std::vector<ButlerExample<float>> examples, float bias) {
  const ButlerGeometry g = test::small_butler();
  ButlerFit fit(g, 2, test::run_items);
  for (ButlerExample<float>& example : examples) {
    for (auto& keys : example.keys) {
      for (float& value : keys) value += bias;
    }
    fit.add_first(example);
  }
  fit.solve_first();
  for (const ButlerExample<float>& example : examples) fit.add_second(example);
  fit.solve_second();
  return fit.weights();
}

// P P^T, which knows nothing of the signs of P's columns.
std::vector<double> outer(const ButlerGeometry& g, const std::vector<float>& projection) {
  std::vector<double> outer(g.head_dim * g.head_dim, 0.0);
  for (size_t i = 0; i < outer.size(); ++i) {
    for (size_t j = 0; j < g.dim; ++j) {
      outer[i] +=
          double{projection[i / g.head_dim * g.dim + j]} * double{projection[i % g.head_dim * g.dim + j]};
    }
  }
  return outer;
}

// What keys have in common shifts all scores of a query alike. In sums of its squares their small directions,
// here a twentieth of the others, would be lost.
TEST(ButlerFit, ABiasOfKeysChangesNothing) {
  const ButlerGeometry g = test::small_butler();
  Random random(5);
  std::vector<ButlerExample<float>> examples;
  for (int i = 0; i < 3; ++i) {
    ButlerExample<float>& example = examples.emplace_back(test::normal_example(g, 200, random));
    for (auto& keys : example.keys) {
      for (size_t at = 0; at < keys.size(); ++at) {
        float& value = keys[at];
        if (at % g.head_dim < 4) value /= 20;
        value = std::round(value * 65536) / 65536;  // so that adding the bias rounds nothing
      }
    }
  }
  const ButlerWeights plain = fitted(examples, 0);
  const ButlerWeights biased = fitted(examples, 256);
  for (size_t layer = 0; layer < plain.projections.size(); ++layer) {
    const std::vector<double> a = outer(g, plain.projections[layer]);
    const std::vector<double> b = outer(g, biased.projections[layer]);
    double largest = 0;
    for (const double value : a) largest = std::max(largest, std::fabs(value));
    for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-5 * largest) << layer << " " << i;
  }
}

}  // namespace
}  // namespace quire
