// Random queries, keys and values of a prompt, and the ways to put them through a cache.
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "cache/cache.h"
#include "property/random.h"
#include "property/reference.h"

namespace quire::test {

inline Geometry geometry(size_t n_heads, size_t head_dim, std::vector<size_t> n_kv_heads) {
  return {n_kv_heads.size(), n_heads, head_dim, std::move(n_kv_heads)};
}

struct Prompt {
  Geometry shape;
  size_t n_tokens;
  std::vector<std::vector<float>> q;  // [layer][n_tokens][n_heads * head_dim], scaled
  std::vector<std::vector<float>> k;  // [layer][n_tokens][n_kv_heads * head_dim]
  std::vector<std::vector<float>> v;

  Prompt(Geometry geometry, size_t n, uint64_t seed) : shape(std::move(geometry)), n_tokens(n) {
    Random random(seed);
    const double scale = 1.0 / std::sqrt(static_cast<double>(shape.head_dim));
    for (size_t layer = 0; layer < shape.n_layers; ++layer) {
      q.push_back(random.normals(n * q_width(), scale));
      k.push_back(random.normals(n * kv_width(layer)));
      v.push_back(random.normals(n * kv_width(layer)));
    }
  }

  size_t q_width() const { return shape.n_heads * shape.head_dim; }
  size_t kv_width(size_t layer) const { return shape.n_kv_heads[layer] * shape.head_dim; }
};

// [layer][n_tokens][n_heads * head_dim]
using Outputs = std::vector<std::vector<float>>;

inline Outputs empty_outputs(const Prompt& prompt) {
  return Outputs(prompt.shape.n_layers, std::vector<float>(prompt.n_tokens * prompt.q_width(), NAN));
}

// One step of the tokens from begin to end, on each layer in pieces of `piece` tokens.
inline void run_step(Cache& cache, const Prompt& prompt, size_t begin, size_t end, size_t piece, Team& team,
                     Outputs& out) {
  cache.begin_step(end - begin, team.size());
  team.run([&](Worker& worker) {
    for (size_t layer = 0; layer < prompt.shape.n_layers; ++layer) {
      const size_t kv = prompt.kv_width(layer);
      const size_t width = prompt.q_width();
      cache.begin_layer(worker, layer);
      for (size_t first = 0; first < end - begin; first += piece) {
        const size_t n = std::min(piece, end - begin - first);
        const size_t at = begin + first;
        cache.append(worker, layer, first, n, prompt.k[layer].data() + at * kv,
                     prompt.v[layer].data() + at * kv, kv);
        cache.attend(worker, layer, first, n, prompt.q[layer].data() + at * width, width,
                     out[layer].data() + at * width, width);
      }
      cache.end_layer(worker, layer);
    }
  });
  cache.end_step();
}

// Steps of `step` tokens each, from what the cache holds to the end of the prompt.
inline void run_rest(Cache& cache, const Prompt& prompt, size_t step, Team& team, Outputs& out) {
  while (cache.n_tokens() < prompt.n_tokens) {
    const size_t begin = cache.n_tokens();
    const size_t end = std::min(prompt.n_tokens, begin + step);
    run_step(cache, prompt, begin, end, end - begin, team, out);
  }
}

inline Outputs run_prompt(const Prompt& prompt, const Recipe& recipe, size_t step, int n_threads = 1) {
  PagePool pool;
  Cache cache(recipe, prompt.shape, pool);
  Team team(n_threads);
  Outputs out = empty_outputs(prompt);
  run_rest(cache, prompt, step, team, out);
  return out;
}

}  // namespace quire::test
