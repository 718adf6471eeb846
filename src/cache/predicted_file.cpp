#include "cache/predicted_file.h"

#include <array>

#include "policy/select_butler.h"

namespace quire {

uint64_t butler_hash(const ButlerWeights& weights) {
  Checksum hash;
  // The same values in other places are another predictor.
  const ButlerGeometry& g = weights.geometry;
  const std::array<uint64_t, 8> shape = {g.n_layers, g.n_heads, g.n_kv_heads, g.head_dim,
                                         g.width,    g.stride,  g.dim,        g.hidden};
  hash.add(std::as_bytes(std::span(shape)));
  const auto add = [&](const std::vector<float>& values) { hash.add(std::as_bytes(std::span(values))); };
  for (const ButlerProducer& producer : weights.producers) {
    for (const auto* part : {&producer.norm_weight, &producer.norm_bias, &producer.in, &producer.out})
      add(*part);
  }
  for (const std::vector<float>& layer : weights.projections) add(layer);
  return hash.value();
}

std::vector<uint64_t> predicted_values(const Cache& cache) {
  std::vector<uint64_t> values = {butler_hash(*cache.facts().butler)};
  const std::vector<uint64_t> state = cache.selector().state(cache.n_tokens());
  values.insert(values.end(), state.begin(), state.end());
  return values;
}

SavedPrediction SavedPrediction::read(const SectionFile& file, const Geometry& geometry, size_t n_tokens) {
  const std::vector<uint64_t> values = file.get_values<uint64_t>("predicted");
  if (values.empty() || !butler_state_fits(std::span(values).subspan(1), geometry.n_kv_heads, n_tokens)) {
    file.fail_section("predicted", "it does not fit the rows");
  }
  return {values[0], {values.begin() + 1, values.end()}};
}

}  // namespace quire
