#include "policy/butler.h"

#include <algorithm>

#include "base/error.h"

namespace quire {

size_t ButlerGeometry::n_parameters() const {
  size_t n = (n_layers - 1) * n_kv_heads * head_dim * dim;
  for (size_t p = 0; p < n_producers(); ++p) n += producer_parameters(p);
  return n;
}

bool ButlerWeights::is_whole() const {
  const ButlerGeometry& g = geometry;
  if (g.n_layers < 2 || g.n_kv_heads == 0 || g.n_heads == 0 || g.n_heads % g.n_kv_heads != 0 ||
      g.head_dim == 0 || g.width == 0 || g.stride == 0 || g.dim == 0 || g.hidden == 0 ||
      producers.size() != g.n_producers() || projections.size() != g.n_layers - 1) {
    return false;
  }
  for (size_t p = 0; p < producers.size(); ++p) {
    const ButlerProducer& own = producers[p];
    if (own.norm_weight.size() != g.width || own.norm_bias.size() != g.width ||
        own.in.size() != g.hidden * g.width || own.out.size() != g.query_values(p) * g.hidden) {
      return false;
    }
  }
  const size_t n_values = g.n_kv_heads * g.head_dim * g.dim;
  return std::all_of(projections.begin(), projections.end(),
                     [&](const std::vector<float>& layer) { return layer.size() == n_values; });
}

ButlerWeights ButlerWeights::zeros(const ButlerGeometry& geometry) {
  QUIRE_CHECK(geometry.n_layers >= 2 && geometry.stride > 0);
  ButlerWeights weights;
  weights.geometry = geometry;
  for (size_t p = 0; p < geometry.n_producers(); ++p) {
    ButlerProducer& producer = weights.producers.emplace_back();
    producer.norm_weight.assign(geometry.width, 1.0f);
    producer.norm_bias.assign(geometry.width, 0.0f);
    producer.in.assign(geometry.hidden * geometry.width, 0.0f);
    producer.out.assign(geometry.query_values(p) * geometry.hidden, 0.0f);
  }
  const size_t values = geometry.n_kv_heads * geometry.head_dim * geometry.dim;
  weights.projections.assign(geometry.n_layers - 1, std::vector<float>(values, 0.0f));
  return weights;
}

}  // namespace quire
