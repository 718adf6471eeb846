// A cache read through its index, and what it should have read: rows coded and decoded by the formats
// themselves, scores in double precision.
#pragma once

#include <algorithm>
#include <cmath>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "property/cache/prompt.h"
#include "property/sealed/scene.h"

namespace quire::test {

// Puts tokens into the cache in steps of `step` without attending.
inline void fill(Cache& cache, const Prompt& prompt, size_t n, size_t step, Team& team) {
  while (cache.n_tokens() < n) {
    const size_t begin = cache.n_tokens();
    const size_t n_new = std::min(step, n - begin);
    cache.begin_step(n_new, team.size());
    team.run([&](Worker& worker) {
      for (size_t layer = 0; layer < prompt.shape.n_layers; ++layer) {
        const size_t kv = prompt.kv_width(layer);
        cache.begin_layer(worker, layer);
        cache.append(worker, layer, 0, n_new, prompt.k[layer].data() + begin * kv,
                     prompt.v[layer].data() + begin * kv, kv);
        cache.end_layer(worker, layer);
      }
    });
    cache.end_step();
  }
}

// A decoded token behind a filled cache.
struct Decoded {
  std::vector<std::vector<float>> out;  // [layer][n_heads * head_dim]
  StepStats stats;
};

struct DecodeOptions {
  size_t step = 4096;  // of the prompt
  int n_threads = 1;
  bool measure_mass = false;
  std::shared_ptr<const KeyBiases> key_biases = nullptr;
};

inline Decoded decode_last(const Prompt& prompt, const Recipe& recipe, const DecodeOptions& options = {}) {
  PagePool pool;
  poison(pool, recipe, prompt.shape, prompt.n_tokens);
  Cache cache(recipe, prompt.shape, pool, {.key_biases = options.key_biases});
  cache.measure_mass(options.measure_mass);
  Team team(options.n_threads);
  fill(cache, prompt, prompt.n_tokens - 1, options.step, team);
  Outputs out = empty_outputs(prompt);
  run_step(cache, prompt, prompt.n_tokens - 1, prompt.n_tokens, 1, team, out);
  for (std::vector<float>& layer : out) {
    layer.erase(layer.begin(), layer.end() - static_cast<ptrdiff_t>(prompt.q_width()));
  }
  return {std::move(out), cache.last_step()};
}

// All layers have the same queries and keys, which are coded as they are (frame=plain), and the values of
// layer l are unit vectors of the tokens from l * head_dim on: the outputs are the weights of all tokens.
struct WeightsPrompt : Prompt {
  WeightsPrompt(size_t n_heads, size_t n_kv_heads, size_t head_dim, size_t n, double sharpness, uint64_t seed)
      : Prompt(geometry(n_heads, head_dim, std::vector<size_t>((n + head_dim - 1) / head_dim, n_kv_heads)), n,
               seed) {
    for (float& x : q[0]) x *= static_cast<float>(sharpness);
    copy_layers();
  }

  // Queries and keys of layer 0 become those of all.
  void copy_layers() {
    const size_t dim = shape.head_dim;
    for (size_t layer = 0; layer < shape.n_layers; ++layer) {
      q[layer] = q[0];
      k[layer] = k[0];
      std::fill(v[layer].begin(), v[layer].end(), 0.0f);
      for (size_t t = layer * dim; t < std::min(n_tokens, (layer + 1) * dim); ++t) {
        for (size_t head = 0; head < shape.n_kv_heads[0]; ++head) {
          v[layer][t * kv_width(0) + head * dim + t % dim] = 1.0f;
        }
      }
    }
  }

  size_t n_kv_heads() const { return shape.n_kv_heads[0]; }
  size_t group() const { return shape.n_heads / n_kv_heads(); }
  // Of query head h, from the outputs.
  double weight(const Decoded& decoded, size_t h, size_t token) const {
    const size_t dim = shape.head_dim;
    return decoded.out[token / dim][h * dim + token % dim];
  }
};

// What the cache's codes say of a WeightsPrompt's last query.
struct Scores {
  Scores(const WeightsPrompt& prompt, const Recipe& recipe) : n_tokens(prompt.n_tokens) {
    const CacheStatistics statistics(recipe, prompt.shape, {});
    const size_t dim = prompt.shape.head_dim;
    n_sealed = sealed_pages(recipe, n_tokens - 1) * kTokensPerPage;
    n_sinks = n_sealed > 0 ? recipe.sink_tokens : 0;
    for (size_t h = 0; h < prompt.shape.n_heads; ++h) {
      const size_t head = h / prompt.group();
      const auto keys =
          stored_rows(recipe, statistics.frames(0, head), true,
                      head_rows(prompt.k[0], n_tokens, prompt.kv_width(0), head, dim), dim, n_sealed / 64);
      const float* q = prompt.q[0].data() + (n_tokens - 1) * prompt.q_width() + h * dim;
      std::vector<double>& row = of_head.emplace_back(n_tokens, 0.0);
      for (size_t t = 0; t < n_tokens; ++t) {
        for (size_t d = 0; d < dim; ++d) row[t] += static_cast<double>(q[d]) * keys[t * dim + d];
        row[t] = capped(row[t], double{prompt.shape.score_softcap});
      }
    }
  }

  bool is_coded(size_t t) const { return t >= n_sinks && t < n_sealed; }
  size_t n_coded() const { return n_sealed - n_sinks; }
  size_t n_exact() const { return n_tokens - n_coded(); }

  // log of the sum over the tokens for which counts(t) holds.
  template <typename Counts>
  double log_sum(size_t h, const Counts& counts) const {
    double top = -INFINITY;
    for (size_t t = 0; t < n_tokens; ++t) {
      if (counts(t)) top = std::max(top, of_head[h][t]);
    }
    double sum = 0;
    for (size_t t = 0; t < n_tokens; ++t) {
      if (counts(t)) sum += std::exp(of_head[h][t] - top);
    }
    return top + std::log(sum);
  }
  double log_sum(size_t h) const {
    return log_sum(h, [](size_t) { return true; });
  }

  size_t n_tokens;
  size_t n_sealed;
  size_t n_sinks;
  std::vector<std::vector<double>> of_head;  // [query head][token]
};

// The tokens that the group of one KV head has read.
inline std::set<size_t> tokens_read(const WeightsPrompt& prompt, const Decoded& decoded, size_t kv_head) {
  std::set<size_t> read;
  for (size_t t = 0; t < prompt.n_tokens; ++t) {
    for (size_t h = kv_head * prompt.group(); h < (kv_head + 1) * prompt.group(); ++h) {
      if (prompt.weight(decoded, h, t) > 0) read.insert(t);
    }
  }
  return read;
}

}  // namespace quire::test
