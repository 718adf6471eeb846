// What a model is: its family and numbers, read from a file and checked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cache/cache.h"
#include "model/families.h"
#include "model/rope.h"
#include "weights/gguf.h"

namespace quire {

struct ModelConfig {
  const ModelFamily* family = nullptr;  // of the catalogue
  std::string architecture;             // its name
  std::string name;
  size_t n_layers = 0;
  size_t width = 0;  // values of the residual stream
  size_t ffn_width = 0;
  size_t n_heads = 0;
  size_t n_kv_heads = 0;
  size_t head_dim = 0;
  size_t vocabulary = 0;
  float norm_epsilon = 0;
  size_t trained_tokens = 0;  // the context that the file states
  // Most tokens of a sequence whose positions are right as they were loaded: `trained_tokens`, more where
  // more was asked for, less where positions were chosen for short contexts.
  size_t context_tokens = 0;

  float embedding_scale = 1;
  float query_scale = 0;    // of the scores: 1 / sqrt(head_dim), if the model does not have it otherwise
  float score_softcap = 0;  // as in Geometry
  float logit_softcap = 0;  // c: logits x become c * tanh(x / c); 0: they stay
  // One a layer, 0: it sees all tokens; empty: all do. As the file has them: a window may be longer than any
  // sequence.
  std::vector<size_t> window_tokens = {};

  size_t rope_dims = 0;  // rotated channels of a head
  // The file has the rows of a query or key head so that rotated pairs are neighbours.
  bool neighbouring_pairs = false;
  Rope rope;
  std::optional<Rope> window_rope = {};  // of the layers with a window, where they turn otherwise
  std::string rope_text;                 // "no scaling", "yarn by 4": for readers

  // Throws Error of one sentence: missing or absurd numbers, another architecture, or anything the
  // forward pass would ignore (it never does so silently).
  static ModelConfig read(const GgufFile& file, const RopeOverrides& overrides = {});

  // Of a head in the file: channels whose rotated pairs are neighbours, the rest being as we have it.
  size_t neighbouring_dims() const { return neighbouring_pairs ? rope_dims : 0; }
  bool has_window(size_t layer) const { return !window_tokens.empty() && window_tokens[layer] != 0; }
  const Rope& layer_rope(size_t layer) const {
    return window_rope && has_window(layer) ? *window_rope : rope;
  }
  // Windows that no sequence fills are none to a cache.
  Geometry geometry() const;
};

}  // namespace quire
