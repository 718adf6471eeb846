#include "policy/butler.h"

#include "base/error.h"

namespace quire {

size_t ButlerGeometry::n_parameters() const {
  size_t n = (n_layers - 1) * n_kv_heads * head_dim * dim;
  for (size_t p = 0; p < n_producers(); ++p) n += 2 * width + hidden * width + query_values(p) * hidden;
  return n;
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
