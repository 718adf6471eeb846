// A made-up predictor, the inputs of its producers, and what it names in double precision.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cache/cache.h"
#include "policy/butler.h"
#include "property/cache/prompt.h"
#include "property/select/scene.h"

namespace quire::test {

inline std::shared_ptr<ButlerWeights> random_butler(const ButlerGeometry& g, uint64_t seed) {
  auto weights = std::make_shared<ButlerWeights>(ButlerWeights::zeros(g));
  Random random(seed);
  const auto near = [&](std::vector<float>& values, double middle, double scale) {
    for (float& x : values) x = static_cast<float>(middle + scale * random.normal());
  };
  for (ButlerProducer& producer : weights->producers) {
    near(producer.norm_weight, 1, 0.1);
    near(producer.norm_bias, 0, 0.1);
    near(producer.in, 0, 2 / std::sqrt(static_cast<double>(g.width)));
    near(producer.out, 0, 4 / std::sqrt(static_cast<double>(g.hidden)));
  }
  for (std::vector<float>& layer : weights->projections) {
    near(layer, 0, 1 / std::sqrt(static_cast<double>(g.head_dim)));
  }
  return weights;
}

struct ButlerPrompt : Prompt {
  ButlerPrompt(const HeadShape& heads, size_t n_layers, size_t n, uint64_t seed, size_t stride = 4,
               size_t dim = 16, size_t hidden = 24, size_t width = 40)
      : Prompt(geometry(heads.n_heads, heads.head_dim, std::vector<size_t>(n_layers, heads.n_kv_heads)), n,
               seed),
        weights(random_butler(
            {n_layers, heads.n_heads, heads.n_kv_heads, heads.head_dim, width, stride, dim, hidden},
            seed + 1)) {
    Random random(seed + 2);
    for (size_t layer = 0; layer < n_layers; ++layer) x.push_back(random.normals(n * width));
  }
  const ButlerGeometry& g() const { return weights->geometry; }

  std::shared_ptr<ButlerWeights> weights;
  std::vector<std::vector<float>> x;  // [layer][token][width]
};

// What steps of one token read and what was named ahead of them.
struct Reads : ReadObserver {
  void named(size_t first_layer, std::span<const Selection> own) override {
    for (size_t i = 0; i < own.size(); ++i) named_rows.emplace(first_layer + i, own[i]);
    ++n_named;
  }
  void read(size_t layer, size_t kv_head, std::span<const uint32_t> positions) override {
    rows[{layer, kv_head}] = {positions.begin(), positions.end()};
    EXPECT_EQ((rows[{layer, kv_head}].size()), positions.size());
  }

  std::map<std::pair<size_t, size_t>, std::set<size_t>> rows;
  std::map<size_t, Selection> named_rows;
  size_t n_named = 0;
};

// A cache whose steps do what a forward pass does.
struct Butler {
  Butler(const std::string& recipe, const ButlerPrompt& prompt_in, int n_threads = 1)
      : Butler(Cache(Recipe::parse(recipe), prompt_in.shape, own_pool(), {.butler = prompt_in.weights}),
               prompt_in, n_threads) {}
  Butler(Cache given, const ButlerPrompt& prompt_in, int n_threads = 1)
      : prompt(prompt_in), cache(std::move(given)), team(n_threads), out(empty_outputs(prompt)) {
    cache.observe_reads(&reads);
  }

  static PagePool& own_pool() {
    static PagePool pool;
    return pool;
  }

  void step(size_t n) {
    const size_t begin = cache.n_tokens();
    reads = Reads{};
    cache.begin_step(n, team.size());
    team.run([&](Worker& worker) {
      for (size_t layer = 0; layer < prompt.shape.n_layers; ++layer) {
        const size_t kv = prompt.kv_width(layer);
        const size_t width = prompt.q_width();
        cache.begin_layer(worker, layer);
        if (cache.predicts(layer)) {
          cache.predict(worker, layer, prompt.x[layer].data() + begin * prompt.g().width);
        }
        cache.append(worker, layer, 0, n, prompt.k[layer].data() + begin * kv,
                     prompt.v[layer].data() + begin * kv, kv);
        cache.attend(worker, layer, 0, n, prompt.q[layer].data() + begin * width, width,
                     out[layer].data() + begin * width, width);
        cache.end_layer(worker, layer);
      }
    });
    cache.end_step();
  }
  // Steps of `size` up to n tokens.
  void grow(size_t n, size_t size) {
    while (cache.n_tokens() < n) step(std::min(size, n - cache.n_tokens()));
  }

  const ButlerPrompt& prompt;
  Cache cache;
  Team team;
  Outputs out;
  Reads reads;
};

// The importance queries of a layer [query head][dim], told by the token's input at the layer's producer.
inline std::vector<std::vector<double>> importance(const ButlerPrompt& prompt, size_t layer, size_t token) {
  const ButlerGeometry& g = prompt.g();
  const size_t p = g.producer_of(layer);
  const ButlerProducer& own = prompt.weights->producers[p];
  const float* input = prompt.x[g.producer_layer(p)].data() + token * g.width;
  double mean = 0;
  double variance = 0;
  for (size_t i = 0; i < g.width; ++i) mean += input[i] / static_cast<double>(g.width);
  for (size_t i = 0; i < g.width; ++i) {
    variance += (input[i] - mean) * (input[i] - mean) / static_cast<double>(g.width);
  }
  std::vector<double> y(g.hidden, 0.0);
  for (size_t j = 0; j < g.hidden; ++j) {
    for (size_t i = 0; i < g.width; ++i) {
      const double x = (input[i] - mean) / std::sqrt(variance + static_cast<double>(kButlerNormEpsilon)) *
                           own.norm_weight[i] +
                       own.norm_bias[i];
      y[j] += x * own.in[j * g.width + i];
    }
    y[j] /= 1 + std::exp(-y[j]);
  }
  std::vector<std::vector<double>> all(g.n_heads, std::vector<double>(g.dim, 0.0));
  for (size_t i = 0; i < g.n_heads * g.dim; ++i) {
    const float* row = own.out.data() + (g.slot_of(layer) * g.n_heads * g.dim + i) * g.hidden;
    for (size_t j = 0; j < g.hidden; ++j) all[i / g.dim][i % g.dim] += y[j] * row[j];
  }
  return all;
}

// Scores [query head of the group][token] of the first n tokens of a layer's KV head for a token's step.
inline std::vector<std::vector<double>> butler_scores(const ButlerPrompt& prompt, size_t layer, size_t head,
                                                      size_t token, size_t n) {
  const ButlerGeometry& g = prompt.g();
  const size_t group = g.n_heads / g.n_kv_heads;
  const auto queries = importance(prompt, layer, token);
  const float* projection = prompt.weights->projections[layer - 1].data() + head * g.head_dim * g.dim;
  std::vector<std::vector<double>> scores(group, std::vector<double>(n, 0.0));
  for (size_t t = 0; t < n; ++t) {
    const float* key = prompt.k[layer].data() + t * prompt.kv_width(layer) + head * g.head_dim;
    for (size_t j = 0; j < g.dim; ++j) {
      double value = 0;
      for (size_t d = 0; d < g.head_dim; ++d)
        value += static_cast<double>(key[d]) * projection[d * g.dim + j];
      for (size_t h = 0; h < group; ++h) {
        scores[h][t] += queries[head * group + h][j] * value / std::sqrt(static_cast<double>(g.dim));
      }
    }
  }
  return scores;
}

}  // namespace quire::test
