// Prompts of models some of whose layers see a window, and what their caches should give, in double
// precision.
#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "property/cache/prompt.h"
#include "property/reference.h"

namespace quire::test {

inline Geometry windowed(Geometry shape, std::vector<size_t> windows, float softcap = 0) {
  shape.window_tokens = std::move(windows);
  shape.score_softcap = softcap;
  return shape;
}

// Of a layer of which every row is exact in f32: one query head's token.
inline std::vector<double> seen(const Prompt& prompt, size_t layer, size_t head, size_t token) {
  const size_t dim = prompt.shape.head_dim;
  const size_t width = prompt.kv_width(layer);
  const size_t column = head / (prompt.shape.n_heads / prompt.shape.n_kv_heads[layer]) * dim;
  const bool windowed = prompt.shape.is_windowed(layer);
  const size_t window = windowed ? prompt.shape.window_tokens[layer] : prompt.n_tokens;
  return attention(
             prompt.q[layer].data() + token * prompt.q_width() + head * dim, dim, token + 1,
             [&](size_t t) { return t + window > token; },
             [&](size_t t, size_t d) { return double{prompt.k[layer][t * width + column + d]}; },
             [&](size_t t, size_t d) { return double{prompt.v[layer][t * width + column + d]}; },
             double{prompt.shape.score_softcap})
      .output;
}

// Largest error of a layer's outputs of the tokens that `each` steps through.
inline double largest_error(const Prompt& prompt, const Outputs& out, size_t layer, size_t each = 1) {
  double worst = 0;
  for (size_t token = 0; token < prompt.n_tokens; token += each) {
    for (size_t head = 0; head < prompt.shape.n_heads; ++head) {
      const std::vector<double> wanted = seen(prompt, layer, head, token);
      const float* got = out[layer].data() + token * prompt.q_width() + head * prompt.shape.head_dim;
      for (size_t d = 0; d < wanted.size(); ++d) {
        const double error = std::fabs(wanted[d] - double{got[d]});
        worst = std::isnan(error) ? INFINITY : std::max(worst, error);
      }
    }
  }
  return worst;
}

// Steps of random lengths, in pieces of random lengths, to n tokens in all.
inline void grow(Cache& cache, const Prompt& prompt, size_t n, Random& random, Team& team, Outputs& out) {
  while (cache.n_tokens() < n) {
    const size_t begin = cache.n_tokens();
    const size_t end = std::min(n, begin + 1 + random.below(random.below(2) == 0 ? 3 : 200));
    run_step(cache, prompt, begin, end, 1 + random.below(end - begin), team, out);
  }
}

}  // namespace quire::test
