#include "study/butler_layout.h"

#include <algorithm>

#include "base/error.h"

namespace quire {

namespace {

// Every array of the weights in the order of the layout.
template <typename Weights, typename F>
void for_each_array(Weights& weights, const F& f) {
  for (auto& producer : weights.producers) {
    f(producer.norm_weight);
    f(producer.norm_bias);
    f(producer.in);
    f(producer.out);
  }
  for (auto& projection : weights.projections) f(projection);
}

}  // namespace

ButlerLayout::ButlerLayout(const ButlerGeometry& geometry) : geometry_(geometry) {
  size_t at = 0;
  for (size_t p = 0; p < geometry.n_producers(); ++p) {
    producers_.push_back(at);
    at += 2 * geometry.width + geometry.hidden * geometry.width + geometry.query_values(p) * geometry.hidden;
  }
  projections_ = at;
  size_ = projection(geometry.n_layers);
  QUIRE_CHECK(size_ == geometry.n_parameters());
}

bool ButlerLayout::is_norm(size_t i) const {
  if (i >= projections_) return false;
  const auto next = std::upper_bound(producers_.begin(), producers_.end(), i);
  return i - *(next - 1) < 2 * geometry_.width;
}

std::vector<float> ButlerLayout::flat(const ButlerWeights& weights) const {
  std::vector<float> flat;
  flat.reserve(size_);
  for_each_array(weights, [&](const std::vector<float>& values) {
    flat.insert(flat.end(), values.begin(), values.end());
  });
  QUIRE_CHECK(flat.size() == size_);
  return flat;
}

ButlerWeights ButlerLayout::weights(const std::vector<float>& flat) const {
  QUIRE_CHECK(flat.size() == size_);
  ButlerWeights weights = ButlerWeights::zeros(geometry_);
  auto from = flat.begin();
  for_each_array(weights, [&](std::vector<float>& values) {
    std::copy_n(from, values.size(), values.begin());
    from += static_cast<ptrdiff_t>(values.size());
  });
  return weights;
}

}  // namespace quire
