// What a cache with coded pages should read and give: its rows coded and decoded by the formats themselves,
// one by one, and attention over them in double precision.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/fp8.h"
#include "base/half.h"
#include "cache/cache.h"
#include "kernels/ops.h"
#include "property/cache/prompt.h"
#include "property/coded_page.h"

namespace quire::test {

// Every code of the catalogue by name, but signvq, whose keys go by the prompt (property/statistics).
inline std::vector<std::string> code_names() {
  std::vector<std::string> names;
  for (int i = 0; i < kCodeCount; ++i) names.emplace_back(info(static_cast<Code>(i)).name);
  std::erase(names, "signvq");
  return names;
}

// A code on both sides, rotated where it is made for that.
inline Recipe coded_recipe(const std::string& code, const std::string& settings = "") {
  const bool rotated = info(side_format_by_name(code)->code).wants_rotation;
  return Recipe::parse(code + "(" + (rotated ? "frame=rotated" : "frame=plain") +
                       (settings.empty() ? "" : "," + settings) + ")");
}

inline size_t sealed_pages(const Recipe& recipe, size_t n_tokens) {
  return n_tokens > recipe.tail_tokens ? (n_tokens - recipe.tail_tokens) / kTokensPerPage : 0;
}

// What a key bias makes up of the key of a token; empty: there is none.
using BiasOfToken = std::function<std::vector<double>(size_t token)>;

inline void add_bias(const BiasOfToken& bias, size_t page, size_t dim, double sign, float* rows) {
  for (size_t t = 0; bias && t < kTokensPerPage; ++t) {
    const std::vector<double> b = bias(page * kTokensPerPage + t);
    for (size_t d = 0; d < b.size(); ++d)
      rows[t * dim + d] = static_cast<float>(rows[t * dim + d] + sign * b[d]);
  }
}

// One side of one KV head as the cache reads it: [n_tokens][dim].
inline std::vector<float> stored_rows(const Recipe& recipe, const HeadFrames& frames, bool keys,
                                      const std::vector<float>& exact, size_t dim, size_t n_sealed,
                                      const BiasOfToken& bias = {}) {
  std::vector<float> rows = exact;
  for (float& x : rows) x = f16_to_f32(f32_to_f16(std::clamp(x, -65504.0f, 65504.0f)));
  const std::vector<float> open = rows;
  const SideFormat& format = keys ? recipe.keys : recipe.values;
  if (format.coded) {
    const Frame* frame =
        keys ? (frames.key_framed ? &frames.key : nullptr) : (frames.value_framed ? &frames.value : nullptr);
    const Codebook& book = keys ? *frames.key_book : *frames.value_book;
    for (size_t page = 0; page < n_sealed; ++page) {
      float* coded = rows.data() + page * kTokensPerPage * dim;
      add_bias(bias, page, dim, -1, coded);
      code_page(format, frame, book, dim, keys, coded);
      add_bias(bias, page, dim, 1, coded);
    }
  }
  const size_t n_coded = format.coded ? 0 : n_sealed * kTokensPerPage * dim;
  for (size_t i = 0; i < n_coded && format.rows == Format::kBF16; ++i) {
    rows[i] = bf16_to_f32(f32_to_bf16(rows[i]));
  }
  for (size_t i = 0; i < n_coded && format.rows == Format::kFP8; ++i)
    rows[i] = fp8_to_f32(f32_to_fp8(rows[i]));
  const size_t n_sinks = n_sealed > 0 ? recipe.sink_tokens : 0;
  std::copy_n(open.begin(), n_sinks * dim, rows.begin());
  return rows;
}

// The columns of one KV head of [n_tokens][n_kv_heads * dim].
inline std::vector<float> head_rows(const std::vector<float>& all, size_t n_tokens, size_t width, size_t head,
                                    size_t dim) {
  std::vector<float> rows(n_tokens * dim);
  for (size_t t = 0; t < n_tokens; ++t) {
    std::copy_n(all.begin() + static_cast<ptrdiff_t>(t * width + head * dim), dim,
                rows.begin() + static_cast<ptrdiff_t>(t * dim));
  }
  return rows;
}

// The output of the tokens from `first` on, which came in one step; [token][n_heads * dim] for one layer.
// selected(kv_head, token): whether a token is read. bias(kv_head, token): see BiasOfToken.
template <typename Selected>
std::vector<std::vector<double>> expected_outputs(
    const Prompt& prompt, const Recipe& recipe, size_t layer, size_t first, const Selected& selected,
    const std::function<std::vector<double>(size_t, size_t)>& bias = {}) {
  const CacheStatistics statistics(recipe, prompt.shape, {});
  const size_t dim = prompt.shape.head_dim;
  const size_t n_kv_heads = prompt.shape.n_kv_heads[layer];
  const size_t group = prompt.shape.n_heads / n_kv_heads;
  const size_t n_sealed = sealed_pages(recipe, first);
  std::vector<std::vector<double>> out(prompt.n_tokens - first, std::vector<double>(prompt.q_width()));
  for (size_t head = 0; head < n_kv_heads; ++head) {
    const HeadFrames frames = statistics.frames(layer, head);
    BiasOfToken of_token;
    if (bias) of_token = [&bias, head](size_t token) { return bias(head, token); };
    const auto rows = [&](const std::vector<float>& all, bool keys) {
      return stored_rows(recipe, frames, keys, head_rows(all, prompt.n_tokens, n_kv_heads * dim, head, dim),
                         dim, n_sealed, keys ? of_token : BiasOfToken());
    };
    const std::vector<float> k = rows(prompt.k[layer], true);
    const std::vector<float> v = rows(prompt.v[layer], false);
    for (size_t token = first; token < prompt.n_tokens; ++token) {
      for (size_t h = head * group; h < (head + 1) * group; ++h) {
        const Attended wanted = attention(
            prompt.q[layer].data() + token * prompt.q_width() + h * dim, dim, prompt.n_tokens,
            [&](size_t t) { return t <= token && selected(head, t); },
            [&](size_t t, size_t d) { return static_cast<double>(k[t * dim + d]); },
            [&](size_t t, size_t d) { return static_cast<double>(v[t * dim + d]); },
            double{prompt.shape.score_softcap});
        std::copy(wanted.output.begin(), wanted.output.end(),
                  out[token - first].begin() + static_cast<ptrdiff_t>(h * dim));
      }
    }
  }
  return out;
}

// Largest |got - wanted| / |wanted| over heads and the tokens from `first` on.
inline double largest_error(const Prompt& prompt, const std::vector<float>& got,
                            const std::vector<std::vector<double>>& wanted, size_t first) {
  const size_t dim = prompt.shape.head_dim;
  double worst = 0;
  for (size_t i = 0; i < wanted.size(); ++i) {
    for (size_t h = 0; h < prompt.shape.n_heads; ++h) {
      double error = 0;
      double size = 0;
      for (size_t d = h * dim; d < (h + 1) * dim; ++d) {
        const double difference = got[(first + i) * prompt.q_width() + d] - wanted[i][d];
        error += difference * difference;
        size += wanted[i][d] * wanted[i][d];
      }
      if (error == 0) continue;
      const double relative = std::sqrt(error / size);
      worst = std::isnan(relative) ? INFINITY : std::max(worst, relative);
    }
  }
  return worst;
}

// Fills what a cache will take its pages from with NaNs.
inline void poison(PagePool& pool, const Recipe& recipe, const Geometry& shape, size_t n_tokens) {
  std::vector<PageRef> pages;
  for (const LayerLayout& layout : layer_layouts(recipe, shape)) {
    for (size_t i = 0; i <= n_tokens / kTokensPerPage; ++i) {
      pages.push_back(pool.allocate(layout.open.page_bytes()));
      pages.push_back(pool.allocate(layout.sealed.page_bytes()));
    }
    if (layout.sink_tokens > 0) pages.push_back(pool.allocate(layout.sink_bytes()));
  }
  for (const PageRef& page : pages) std::memset(page->data, 0xff, page->size_bytes);
}

// The last `n_last` tokens of the prompt in one step, after one step of those before; the outputs of one
// layer.
inline std::vector<float> last_step_output(const Prompt& prompt, const Recipe& recipe, size_t n_last,
                                           size_t layer = 0, int n_threads = 1,
                                           std::shared_ptr<const KeyBiases> key_biases = nullptr) {
  PagePool pool;
  poison(pool, recipe, prompt.shape, prompt.n_tokens);
  Cache cache(recipe, prompt.shape, pool, {.key_biases = std::move(key_biases)});
  Team team(n_threads);
  Outputs out = empty_outputs(prompt);
  const size_t first = prompt.n_tokens - n_last;
  if (first > 0) run_step(cache, prompt, 0, first, first, team, out);
  run_step(cache, prompt, first, prompt.n_tokens, n_last, team, out);
  return out[layer];
}

// The error of that step's outputs against double precision.
inline double last_step_error(const Prompt& prompt, const Recipe& recipe, size_t n_last) {
  double worst = 0;
  for (size_t layer = 0; layer < prompt.shape.n_layers; ++layer) {
    const size_t first = prompt.n_tokens - n_last;
    const auto wanted = expected_outputs(prompt, recipe, layer, first, [](size_t, size_t) { return true; });
    worst = std::max(worst,
                     largest_error(prompt, last_step_output(prompt, recipe, n_last, layer), wanted, first));
  }
  return worst;
}

// Codes that are read as bytes of a table: the entries are rounded to 1/254 of the largest. The other codes
// are whole numbers, and exact as bytes.
inline bool read_by_table(const SideFormat& side) {
  if (!side.coded) return false;
  switch (side.code) {
    case Code::kQ8:
    case Code::kQ4:
    case Code::kKivi2:
    case Code::kKivi4: return false;
    default: return true;
  }
}

// Through f32 rows. The sums are of up to 256 products and a few hundred tokens.
constexpr double kExactError = 1e-5;
// Through bytes: queries and weights are rounded to 1/65024 of the largest.
constexpr double kWholeError = 1e-3;
// ... and the table's rounding: 1/254 of the largest entry, which is some 2.7 times a coordinate's mean size.
constexpr double kTableError = 0.03;
// ... and weights of 1/254 of the largest, of values that are coded to some 40 %.
constexpr double kVqError = 0.08;

inline double allowed_error(const Recipe& recipe) {
  for (const SideFormat& side : {recipe.keys, recipe.values}) {
    if (side.coded && side.code == Code::kSignVq) return kVqError;
  }
  if (read_by_table(recipe.keys) || read_by_table(recipe.values)) return kTableError;
  return recipe.keys.coded || recipe.values.coded ? kWholeError : kExactError;
}

}  // namespace quire::test
