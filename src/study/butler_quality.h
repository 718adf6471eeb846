// How much of what a model attends to a predictor finds, at some budgets of rows.
#pragma once

#include <array>
#include <cstddef>
#include <vector>

#include "study/butler_example.h"
#include "study/butler_gradient.h"

namespace quire {

// Shares of a row's tokens that are read besides sinks and the local window.
constexpr std::array<double, 4> kButlerBudgets = {0.02, 0.05, 0.10, 0.20};

// Of one layer at one budget, as means over rows and KV heads.
struct ButlerScore {
  double recall = 0;       // share of the truly best rows among those chosen
  double mass = 0;         // attention on rows chosen, sinks and the local window
  double oracle_mass = 0;  // the same of the truly best rows
  double always_mass = 0;  // attention on sinks and the local window alone

  // Of what can be found: what was, as a share of what the truly best rows would have.
  double found() const {
    const double most = oracle_mass - always_mass;
    return most > 0 ? (mass - always_mass) / most : 1;
  }
};

struct ButlerQuality {
  size_t n_rows = 0;
  std::vector<std::array<ButlerScore, kButlerBudgets.size()>> layers;  // [layer - 1]

  ButlerScore mean(size_t budget) const;
};

// How the scores of a group's query heads become one per row.
enum class ButlerPooling : uint8_t {
  kMax,            // the largest score
  kNormalisedMax,  // of scores less the head's log-sum-exp over the candidates
  kNormalisedSum,  // sum of the exponentials of these
};

// Adds examples up; rows are chosen as run time chooses them: per KV head, among the candidates of the mask.
class ButlerMeter {
 public:
  ButlerMeter(const ButlerLayout& layout, const ButlerMask& mask, ButlerPooling pooling, ItemRunner run);

  void add(const ButlerExample<float>& example, const float* parameters);
  ButlerQuality quality() const;

 private:
  ButlerLayout layout_;
  ButlerMask mask_;
  ButlerPooling pooling_;
  ItemRunner run_;
  ButlerGradient<float> gradient_;
  ButlerQuality sums_;
};

}  // namespace quire
