// Caches whose codes go by statistics of the prompt, and what these should be, in double precision.
#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "property/sealed/scene.h"

namespace quire::test {

constexpr size_t kFirstSeal = 512;  // tokens

// A cache after so many tokens of the prompt, in steps of `step`.
struct Grown {
  Grown(const Prompt& prompt, const Recipe& recipe, size_t n, size_t step, uint64_t budget = 0,
        int n_threads = 1)
      : pool(budget), cache(recipe, prompt.shape, pool), team(n_threads), out(empty_outputs(prompt)) {
    grow(prompt, n, step);
  }

  void grow(const Prompt& prompt, size_t n, size_t step) {
    while (cache.n_tokens() < n) {
      const size_t begin = cache.n_tokens();
      const size_t end = std::min(n, begin + step);
      run_step(cache, prompt, begin, end, end - begin, team, out);
    }
  }

  LayerView view(size_t layer) const { return cache.store().view(layer, cache.n_tokens()); }
  std::vector<uint32_t> kept(size_t layer, size_t kv_head) const {
    const KeptRows* rows = view(layer).kept;
    if (rows == nullptr) return {};
    const auto first = rows->positions.begin() + static_cast<ptrdiff_t>(kv_head * rows->n);
    return {first, first + static_cast<ptrdiff_t>(rows->n)};
  }

  PagePool pool;
  Cache cache;
  Team team;
  Outputs out;
};

// Rows of one head as open pages hold them (f16).
inline std::vector<double> exact_rows(const Prompt& prompt, const std::vector<float>& all, size_t layer,
                                      size_t n, size_t head) {
  const std::vector<float> rows = head_rows(all, n, prompt.kv_width(layer), head, prompt.shape.head_dim);
  std::vector<double> exact;
  for (const float x : rows) exact.push_back(f16_to_f32(f32_to_f16(x)));
  return exact;
}

inline std::vector<double> mean_of(const std::vector<double>& rows, size_t dim, size_t first) {
  std::vector<double> mean(dim, 0.0);
  const size_t n = rows.size() / dim;
  for (size_t t = first; t < n; ++t) {
    for (size_t d = 0; d < dim; ++d) mean[d] += rows[t * dim + d] / static_cast<double>(n - first);
  }
  return mean;
}

// One side of one KV head as the cache reads it, [n_tokens][dim]: sinks, kept rows and open pages exact, the
// others through the frames of the layer's statistics.
inline std::vector<float> rows_as_read(const Grown& grown, const Prompt& prompt, size_t layer, size_t head,
                                       bool keys) {
  const Recipe& recipe = grown.cache.recipe();
  const size_t dim = prompt.shape.head_dim;
  const size_t n = grown.cache.n_tokens();
  const CacheStatistics statistics(recipe, prompt.shape, {});
  HeadFrames frames = statistics.frames(layer, head);
  if (const LayerStatistics* made = grown.cache.layer_statistics(layer))
    frames = made->apply(frames, head, dim);
  const std::vector<float> all =
      head_rows(keys ? prompt.k[layer] : prompt.v[layer], n, prompt.kv_width(layer), head, dim);
  std::vector<float> rows = stored_rows(recipe, frames, keys, all, dim, grown.view(layer).n_sealed());
  for (const uint32_t t : grown.kept(layer, head)) {
    for (size_t d = 0; d < dim; ++d) rows[t * dim + d] = f16_to_f32(f32_to_f16(all[t * dim + d]));
  }
  return rows;
}

// Error of a decoded token's output, [n_heads * head_dim] of one layer, against full attention over the rows
// that the cache held before it; prompt token `token` is the one decoded.
inline double decode_error(const Grown& before, const Prompt& prompt, size_t layer, const float* out,
                           size_t token) {
  const size_t dim = prompt.shape.head_dim;
  const size_t n_kv = prompt.shape.n_kv_heads[layer];
  const size_t group = prompt.shape.n_heads / n_kv;
  double worst = 0;
  std::vector<float> k, v;
  for (size_t h = 0; h < prompt.shape.n_heads; ++h) {
    if (h % group == 0) {
      k = rows_as_read(before, prompt, layer, h / group, true);
      v = rows_as_read(before, prompt, layer, h / group, false);
      for (size_t d = 0; d < dim; ++d) {
        const size_t at = token * prompt.kv_width(layer) + h / group * dim + d;
        k.push_back(f16_to_f32(f32_to_f16(prompt.k[layer][at])));
        v.push_back(f16_to_f32(f32_to_f16(prompt.v[layer][at])));
      }
    }
    const Attended wanted = attention(
        prompt.q[layer].data() + token * prompt.q_width() + h * dim, dim, token + 1,
        [](size_t) { return true; }, [&](size_t t, size_t d) { return static_cast<double>(k[t * dim + d]); },
        [&](size_t t, size_t d) { return static_cast<double>(v[t * dim + d]); });
    double error = 0;
    double size = 0;
    for (size_t d = 0; d < dim; ++d) {
      error += std::pow(out[h * dim + d] - wanted.output[d], 2);
      size += std::pow(wanted.output[d], 2);
    }
    worst = std::max(worst, std::sqrt(error / size));
  }
  return worst;
}

}  // namespace quire::test
