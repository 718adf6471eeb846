// Rows in a store, a selector that has seen them, and their scores in double precision.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "cache/make_selector.h"
#include "property/cache/prompt.h"
#include "property/store/sequence_model.h"

namespace quire::test {

// One with made-up channel weights, for recipes that want any.
inline std::shared_ptr<const Calibration> channel_calibration(const Geometry& shape, uint64_t seed) {
  auto made = std::make_shared<Calibration>();
  made->geometry = shape;
  Random random(seed);
  for (const size_t n_kv_heads : shape.n_kv_heads) {
    for (size_t i = 0; i < n_kv_heads * shape.head_dim; ++i) {
      made->query_key.push_back(static_cast<float>(random.unit()));
    }
  }
  made->key_mean.assign(made->query_key.size(), 0.0f);
  made->value_mean = made->key_mean;
  made->key_balance.assign(made->query_key.size(), 1.0f);
  return made;
}

// A store of exact rows, one layer's prompt; the last token's query selects.
struct SelectScene {
  SelectScene(const std::string& text, const Prompt& prompt_in, size_t step = 50)
      : prompt(prompt_in),
        recipe(Recipe::parse(text)),
        calibration(channel_calibration(prompt.shape, 5)),
        store(layer_layouts(recipe, prompt.shape), pool),
        selector(make_selector(recipe, prompt.shape, {.calibration = calibration})) {
    while (store.n_tokens() < prompt.n_tokens) append(std::min(step, prompt.n_tokens - store.n_tokens()));
  }

  void append(size_t n) {
    const size_t first = store.n_tokens();
    store.extend(n);
    for (size_t layer = 0; layer < prompt.shape.n_layers; ++layer) {
      const size_t kv = prompt.kv_width(layer);
      const LayerView view = store.view(layer, first + n);
      for (size_t head = 0; head < prompt.shape.n_kv_heads[layer]; ++head) {
        const size_t at = first * kv + head * prompt.shape.head_dim;
        store.write(layer, head, first, n, prompt.k[layer].data() + at, prompt.v[layer].data() + at, kv);
        selector->append(store, layer, head, first, n);
        if (!selector->observes(store)) continue;
        selector->observe(
            {&view, layer, head, group(layer),
             prompt.q[layer].data() + first * prompt.q_width() + head * group(layer) * prompt.shape.head_dim},
            first, n, prompt.q_width());
        selector->end_layer(store, layer, head, first + n);
      }
    }
    store.commit(n);
  }

  size_t group(size_t layer = 0) const { return prompt.shape.n_heads / prompt.shape.n_kv_heads[layer]; }
  size_t dim() const { return prompt.shape.head_dim; }
  LayerView view(size_t layer = 0) const { return store.view(layer, store.n_tokens()); }
  // Of query head h, at the last token.
  const float* query(size_t h, size_t layer = 0) const {
    return prompt.q[layer].data() + (store.n_tokens() - 1) * prompt.q_width() + h * dim();
  }
  HeadStep head_step(const LayerView& view, size_t head, size_t layer = 0) const {
    return {&view, layer, head, group(layer), query(head * group(layer), layer)};
  }

  std::set<size_t> rows(size_t head, size_t layer = 0) const {
    const LayerView own = view(layer);
    Selection selection(own.layout->n_kv_heads, own.pages.size());
    selector->select(head_step(own, head, layer), selection);
    std::set<size_t> chosen;
    for (size_t t = 0; t < 64 * own.pages.size(); ++t) {
      if (selection.word(head, t / 64) >> (t % 64) & 1) chosen.insert(t);
    }
    return chosen;
  }

  double key(size_t head, size_t t, size_t d) const {
    return static_cast<double>(stored_key(view(), head, t, d));
  }
  double score(size_t h, size_t t) const {
    double sum = 0;
    for (size_t d = 0; d < dim(); ++d) sum += static_cast<double>(query(h)[d]) * key(h / group(), t, d);
    return sum;
  }

  const Prompt& prompt;
  Recipe recipe;
  std::shared_ptr<const Calibration> calibration;
  PagePool pool;
  Store store;
  std::unique_ptr<Selector> selector;
};

// The highest logarithm of a probability over heads, of scores [head][i].
inline std::vector<double> best_of(const std::vector<std::vector<double>>& scores) {
  std::vector<double> best(scores[0].size(), -INFINITY);
  for (const std::vector<double>& own : scores) {
    const double top = *std::max_element(own.begin(), own.end());
    double sum = 0;
    for (const double s : own) sum += std::exp(s - top);
    for (size_t i = 0; i < own.size(); ++i) best[i] = std::max(best[i], own[i] - top - std::log(sum));
  }
  return best;
}

// The n highest.
inline std::set<size_t> highest(const std::vector<double>& values, size_t n) {
  std::vector<size_t> order(values.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return values[a] > values[b]; });
  order.resize(std::min(n, order.size()));
  return {order.begin(), order.end()};
}

// Whether `chosen` are n highest of the values, values within `error` of one another being equal.
inline bool are_highest(const std::set<size_t>& chosen, const std::vector<double>& values, size_t n,
                        double error) {
  if (chosen.size() != std::min(n, values.size())) return false;
  double least = INFINITY;
  for (const size_t i : chosen) least = std::min(least, values[i]);
  for (size_t i = 0; i < values.size(); ++i) {
    if (!chosen.contains(i) && values[i] > least + error) return false;
  }
  return true;
}

struct HeadShape {
  size_t n_heads, n_kv_heads, head_dim;
};
// GQA ratios 1 to 9, head sizes 40 to 256.
constexpr HeadShape kHeadShapes[] = {{1, 1, 64},  {9, 3, 64},  {9, 1, 40},
                                     {4, 2, 128}, {8, 2, 100}, {5, 1, 256}};

}  // namespace quire::test
