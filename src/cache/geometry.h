// The shape of a model's KV cache.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "cache/recipe.h"
#include "store/store.h"

namespace quire {

// Tokens that a cache has seen, and rows that lie in each layer's pages: fewer where some were dropped.
struct CacheRows {
  CacheRows(size_t n) : n_tokens(n), n_rows(n) {}  // NOLINT: a cache that dropped none
  CacheRows(size_t tokens, size_t rows) : n_tokens(tokens), n_rows(rows) {}

  size_t n_tokens;
  size_t n_rows;
};

// What a cache must know of the model.
struct Geometry {
  size_t n_layers = 0;
  size_t n_heads = 0;  // a multiple of every layer's n_kv_heads
  size_t head_dim = 0;
  std::vector<size_t> n_kv_heads;  // one per layer
  // One per layer, 0 where it sees every token; empty: all do. A query at position p of a layer with a window
  // of W sees the tokens p - W + 1 to p.
  std::vector<size_t> window_tokens = {};
  // c: attention takes c * tanh(s / c) for a score s (Gemma 2, arXiv 2408.00118); 0: the score itself.
  float score_softcap = 0;

  bool is_windowed(size_t layer) const { return !window_tokens.empty() && window_tokens[layer] > 0; }
  bool has_windows() const;
  // The first layer that sees every token, n_layers where none does. These layers keep their rows as the
  // recipe says, and all alike; layers with a window keep its rows exact.
  size_t first_full_layer() const;

  // Rows that `full` holds when it has seen n_tokens, and that a query behind them reads: over all layers and
  // KV heads.
  uint64_t rows_of(size_t n_tokens) const;

  // Bytes that a token takes in the long run, all layers, keys and values: none in layers with a window.
  uint64_t token_bytes(const Recipe& recipe) const;
  // Bytes of the pages that n tokens take, which came in one step; at most, where coded rows may have copies.
  uint64_t cache_bytes(const Recipe& recipe, size_t n_tokens) const;
  // Most bytes that pages take at any moment while a cache grows to n_total tokens, in steps of
  // step_tokens (0: one step). Of recipes that code or drop a long step has one layer's pages open at a time.
  uint64_t peak_bytes(const Recipe& recipe, const CacheRows& before, size_t n_total,
                      size_t step_tokens) const;
};

// Coded recipes with steps of at most this many tokens make room on all layers at once; longer ones do it
// layer by layer, so that only one layer's rows are open at a time.
constexpr size_t kSmallStep = 64;

// One a layer.
std::vector<LayerLayout> layer_layouts(const Recipe& recipe, const Geometry& geometry);
// Throws Error, with the recipe and a layer in it, where the layers' windows leave nothing to a recipe or it
// cannot be had beside them.
void check_windows(const Recipe& recipe, const Geometry& geometry);

}  // namespace quire
