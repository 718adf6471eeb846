// Examples of made numbers, for whatever learns from them.
#pragma once

#include <cmath>
#include <functional>
#include <numeric>
#include <vector>

#include "engine/random.h"
#include "study/butler_example.h"

namespace quire::test {

inline std::vector<float> normals(Random& random, size_t n, double scale) {
  std::vector<float> values(n);
  for (float& value : values) {
    const double radius = std::sqrt(-2 * std::log(1 - random.uniform()));
    value = static_cast<float>(scale * radius * std::cos(6.283185307179586 * random.uniform()));
  }
  return values;
}

// Every position is a row.
inline ButlerExample<float> normal_example(const ButlerGeometry& g, size_t n_tokens, Random& random) {
  ButlerExample<float> example;
  example.n_tokens = n_tokens;
  example.rows.resize(n_tokens);
  std::iota(example.rows.begin(), example.rows.end(), size_t{0});
  for (size_t p = 0; p < g.n_producers(); ++p)
    example.inputs.push_back(normals(random, n_tokens * g.width, 2));
  for (size_t layer = 1; layer < g.n_layers; ++layer) {
    example.queries.push_back(normals(random, g.n_heads * n_tokens * g.head_dim, 0.6));
    example.keys.push_back(normals(random, g.n_kv_heads * n_tokens * g.head_dim, 1));
  }
  return example;
}

inline ButlerGeometry small_butler() {
  ButlerGeometry g;
  g.n_layers = 3;
  g.n_heads = 2;
  g.n_kv_heads = 1;
  g.head_dim = 8;
  g.width = 12;
  g.dim = 3;
  g.hidden = 6;
  return g;
}

inline void run_items(size_t n, const std::function<void(size_t)>& f) {
  for (size_t i = 0; i < n; ++i) f(i);
}

}  // namespace quire::test
