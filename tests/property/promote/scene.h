// Caches that promote pages, prompts whose queries like certain tokens, and the rows that a step then reads.
#pragma once

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "cache/hot_rows.h"
#include "property/cache/prompt.h"
#include "property/sealed/scene.h"

namespace quire::test {

// A small Monarch: a window of 64, room for four pages of 16.
inline Recipe monarch(const std::string& settings = "") {
  const bool sized = settings.find("max_hot=") != std::string::npos;
  return Recipe::parse(std::string("monarch(frame=rotated,window=64") + (sized ? "" : ",max_hot=128") +
                       (settings.empty() ? "" : "," + settings) + ")");
}

// The queries of the tokens from `first` to `last` - 1 score the token's key by `score` more, on all layers
// and heads, or one query head only.
constexpr size_t kAllHeads = ~size_t{0};
inline void like(Prompt& prompt, size_t first, size_t last, size_t token, double score,
                 size_t head = kAllHeads) {
  const size_t dim = prompt.shape.head_dim;
  for (size_t layer = 0; layer < prompt.shape.n_layers; ++layer) {
    const size_t group = prompt.shape.n_heads / prompt.shape.n_kv_heads[layer];
    for (size_t h = 0; h < prompt.shape.n_heads; ++h) {
      if (head != kAllHeads && h != head) continue;
      const float* k = prompt.k[layer].data() + token * prompt.kv_width(layer) + h / group * dim;
      double square = 0;
      for (size_t d = 0; d < dim; ++d) square += double{k[d]} * k[d];
      for (size_t t = first; t < last; ++t) {
        float* q = prompt.q[layer].data() + t * prompt.q_width() + h * dim;
        for (size_t d = 0; d < dim; ++d) q[d] += static_cast<float>(score * k[d] / square);
      }
    }
  }
}

// Queries like nothing in particular: a page of 16 of some 600 tokens has a sixth of a head.
inline void quieten(Prompt& prompt) {
  for (std::vector<float>& q : prompt.q) {
    for (float& x : q) x *= 0.3f;
  }
}

// A cache after a prompt, decoding token by token.
struct Decoding {
  Decoding(const Prompt& prompt_in, const Recipe& recipe, size_t n_prompt, int n_threads = 1,
           uint64_t budget = 0)
      : prompt(prompt_in),
        pool(budget),
        cache(recipe, prompt.shape, pool),
        team(n_threads),
        out(empty_outputs(prompt)) {
    if (n_prompt > 0) run_step(cache, prompt, 0, n_prompt, n_prompt, team, out);
  }

  void step() {
    const size_t n = cache.n_tokens();
    run_step(cache, prompt, n, n + 1, 1, team, out);
  }
  void steps(size_t n) {
    for (size_t i = 0; i < n; ++i) step();
  }

  const CopyTable& copies() const { return cache.store().copies(); }
  size_t n_sealed() const { return cache.coded_tokens(); }
  bool has_copy(size_t token) const { return copies().word(token / 64) >> token % 64 & 1; }
  // What the next step reads in any case.
  std::function<bool(size_t, size_t)> hot() const {
    const size_t n_sinks = n_sealed() > 0 ? cache.recipe().sink_tokens : 0;
    return [copies = copies(), n_sealed = n_sealed(), n_sinks](size_t, size_t t) {
      return t < n_sinks || t >= n_sealed || (copies.word(t / 64) >> t % 64 & 1);
    };
  }
  std::vector<size_t> pages_with_copies() const {
    std::vector<size_t> pages;
    for (size_t slot = 0; slot < copies().n_slots(); ++slot) {
      if (copies().page_in(slot) != CopyTable::kFree) pages.push_back(copies().page_in(slot));
    }
    std::sort(pages.begin(), pages.end());
    return pages;
  }

  // Of the last step, against attention in double precision to the rows for which selected(kv_head, token)
  // holds, as they were before it.
  template <typename Selected>
  double error_of_step(const Selected& selected) const {
    return error_by_layer([&](size_t, size_t head, size_t token) { return selected(head, token); });
  }
  // The same of selected(layer, kv_head, token).
  template <typename Selected>
  double error_by_layer(const Selected& selected) const {
    const size_t at = cache.n_tokens() - 1;
    double worst = 0;
    Prompt upto = prompt;
    upto.n_tokens = at + 1;
    for (size_t layer = 0; layer < prompt.shape.n_layers; ++layer) {
      const auto wanted = expected_outputs(upto, cache.recipe(), layer, at, [&](size_t head, size_t token) {
        return selected(layer, head, token);
      });
      worst = std::max(worst, largest_error(upto, out[layer], wanted, at));
    }
    return worst;
  }

  const Prompt& prompt;
  PagePool pool;
  Cache cache;
  Team team;
  Outputs out;
};

// A prompt's outputs of one token, all layers after one another.
inline std::vector<float> outputs_of(const Decoding& decoding, size_t token) {
  std::vector<float> all;
  const auto width = static_cast<ptrdiff_t>(decoding.prompt.q_width());
  for (const std::vector<float>& layer : decoding.out) {
    const auto from = layer.begin() + static_cast<ptrdiff_t>(token) * width;
    all.insert(all.end(), from, from + width);
  }
  return all;
}

}  // namespace quire::test
