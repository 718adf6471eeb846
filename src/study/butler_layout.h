// The parameters of a predictor (policy/butler.h) as one array, for an optimizer: each producer's
// norm_weight, norm_bias, in and out, then the projections of the layers from 1 on.
#pragma once

#include <cstddef>
#include <vector>

#include "policy/butler.h"

namespace quire {

class ButlerLayout {
 public:
  explicit ButlerLayout(const ButlerGeometry& geometry);

  const ButlerGeometry& geometry() const { return geometry_; }
  size_t size() const { return size_; }
  // Where each begins.
  size_t norm_weight(size_t producer) const { return producers_[producer]; }
  size_t norm_bias(size_t producer) const { return producers_[producer] + geometry_.width; }
  size_t in(size_t producer) const { return producers_[producer] + 2 * geometry_.width; }
  size_t out(size_t producer) const { return in(producer) + geometry_.hidden * geometry_.width; }
  size_t projection(size_t layer) const {
    return projections_ + (layer - 1) * geometry_.n_kv_heads * geometry_.head_dim * geometry_.dim;
  }
  // Whether weight decay leaves a parameter alone: those of the norms.
  bool is_norm(size_t i) const;

  std::vector<float> flat(const ButlerWeights& weights) const;
  ButlerWeights weights(const std::vector<float>& flat) const;

 private:
  ButlerGeometry geometry_;
  std::vector<size_t> producers_;
  size_t projections_ = 0;
  size_t size_ = 0;
};

}  // namespace quire
