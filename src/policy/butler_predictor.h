// The learned predictor at run time: what policy/butler.h says, for one token, in pieces that a team shares.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "policy/butler.h"

namespace quire {

// Immutable; the weights are those of the model, whoever uses them. Values of a row do not depend on which
// others are asked for with it.
class ButlerPredictor {
 public:
  // Rows of a product that are computed together.
  static constexpr size_t kRows = 16;

  explicit ButlerPredictor(std::shared_ptr<const ButlerWeights> weights) : weights_(std::move(weights)) {}

  const ButlerGeometry& geometry() const { return weights_->geometry; }

  // input [width] -> LayerNorm of it [width].
  void normalise(size_t producer, const float* input, float* out) const;
  // Values first..last - 1 of SiLU(x in^T), written at their places; at most kRows.
  void hidden(size_t producer, const float* x, size_t first, size_t last, float* out) const;
  // The same of the importance queries [slot][query head][dim], divided by sqrt(dim).
  void queries(size_t producer, const float* hidden, size_t first, size_t last, float* out) const;

  // P of a layer from 1 on: [head_dim][dim].
  const float* projection(size_t layer, size_t kv_head) const {
    const ButlerGeometry& g = geometry();
    return weights_->projections[layer - 1].data() + kv_head * g.head_dim * g.dim;
  }
  // Of the weights that a call of all these for a producer reads.
  uint64_t weight_bytes(size_t producer) const {
    return geometry().producer_parameters(producer) * sizeof(float);
  }

 private:
  std::shared_ptr<const ButlerWeights> weights_;
};

}  // namespace quire
