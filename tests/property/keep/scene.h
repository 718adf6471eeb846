// Caches that drop rows or keep a reserve, and what they should answer, in double precision.
#pragma once

#include <cmath>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "cache/cache.h"
#include "property/cache/prompt.h"
#include "property/reference.h"

namespace quire::test {

// One pair of channels turns fast, the last ones hardly.
inline std::shared_ptr<const RopeFrequencies> frequencies(size_t head_dim) {
  auto all = std::make_shared<RopeFrequencies>();
  for (size_t i = 0; i < head_dim / 2; ++i) {
    all->push_back(std::pow(10000.0, -2.0 * static_cast<double>(i) / static_cast<double>(head_dim)));
  }
  return all;
}

// A cache, its team and what has come out of it.
struct Keeper {
  Keeper(const Prompt& prompt, const std::string& recipe, int n_threads = 1)
      : cache(Recipe::parse(recipe), prompt.shape, pool,
              {.rope_frequencies = frequencies(prompt.shape.head_dim)}),
        team(n_threads),
        out(empty_outputs(prompt)) {}

  void grow(const Prompt& prompt, size_t n_total, size_t step) {
    while (cache.n_tokens() < n_total) {
      const size_t begin = cache.n_tokens();
      const size_t end = std::min(n_total, begin + step);
      run_step(cache, prompt, begin, end, end - begin, team, out);
    }
  }

  PagePool pool;
  Cache cache;
  Team team;
  Outputs out;
};

// Attention of one query head's token to the positions given, whose keys and values are f32 rows.
inline std::vector<double> attended(const Prompt& prompt, size_t layer, size_t head, size_t token,
                                    const std::set<uint32_t>& positions) {
  const size_t dim = prompt.shape.head_dim;
  const size_t group = prompt.shape.n_heads / prompt.shape.n_kv_heads[layer];
  const size_t width = prompt.kv_width(layer);
  const size_t column = head / group * dim;
  return attention(
             prompt.q[layer].data() + token * prompt.q_width() + head * dim, dim, token + 1,
             [&](size_t t) { return positions.count(static_cast<uint32_t>(t)) > 0; },
             [&](size_t t, size_t d) { return double{prompt.k[layer][t * width + column + d]}; },
             [&](size_t t, size_t d) { return double{prompt.v[layer][t * width + column + d]}; })
      .output;
}

// Probabilities of the same, added to `mass` [position].
inline void add_mass(const Prompt& prompt, size_t layer, size_t head, size_t token,
                     const std::set<uint32_t>& positions, std::vector<double>& mass) {
  const size_t dim = prompt.shape.head_dim;
  const size_t group = prompt.shape.n_heads / prompt.shape.n_kv_heads[layer];
  const size_t width = prompt.kv_width(layer);
  const float* q = prompt.q[layer].data() + token * prompt.q_width() + head * dim;
  std::vector<double> weights;
  double sum = 0;
  for (const uint32_t t : positions) {
    double score = 0;
    for (size_t d = 0; d < dim; ++d)
      score += double{q[d]} * prompt.k[layer][t * width + head / group * dim + d];
    weights.push_back(std::exp(score));
    sum += weights.back();
  }
  size_t i = 0;
  for (const uint32_t t : positions) mass[t] += weights[i++] / sum;
}

inline double worst_error(const std::vector<double>& wanted, const float* got) {
  double worst = 0;
  for (size_t d = 0; d < wanted.size(); ++d) worst = std::max(worst, std::fabs(wanted[d] - double{got[d]}));
  return std::isnan(got[0]) ? INFINITY : worst;
}

}  // namespace quire::test
