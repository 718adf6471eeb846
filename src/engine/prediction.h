// How much memory a model will need, from its file's header alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "cache/geometry.h"
#include "cache/recipe.h"
#include "weights/gguf.h"

namespace quire {

// Shape of a model's keys and values as its metadata give it. More general than what Model runs, so that
// memory can be predicted for files that are only looked at: KV heads may differ from layer to layer (0 in
// layers without attention), and keys may be longer than values.
struct KvShape {
  std::vector<uint64_t> n_kv_heads;  // one per layer
  uint64_t key_length = 0;
  uint64_t value_length = 0;
  std::vector<uint64_t> window_tokens = {};  // as in Geometry; of models that run

  // Reads the file's metadata, of any architecture; throws Error of one sentence when they are missing or
  // absurd.
  static KvShape read(const GgufFile& file);

  // Bytes that a token takes in the long run, all layers, keys and values. Coded recipes need keys as long as
  // values, and no longer than codes allow; all of these throw Error where they cannot be had.
  uint64_t token_bytes(const Recipe& recipe) const;
  // Bytes of the pages that n tokens take, as Geometry::cache_bytes().
  uint64_t cache_bytes(const Recipe& recipe, uint64_t n_tokens) const;
  // Most bytes of pages while a prompt of n tokens is computed in one step, layer by layer.
  uint64_t peak_bytes(const Recipe& recipe, uint64_t n_tokens) const;

 private:
  bool needs_geometry(const Recipe& recipe) const;
  Geometry coded_geometry(const Recipe& recipe, uint64_t n_tokens) const;
  // Where every token stays in exact rows.
  uint64_t exact_token_bytes(const Recipe& recipe) const;
  uint64_t exact_bytes(const Recipe& recipe, uint64_t n_tokens) const;
};

struct MemoryPrediction {
  uint64_t weight_bytes = 0;   // tensors as they lie in memory once loaded
  uint64_t kv_bytes = 0;       // of the cache when it holds all tokens; exact
  uint64_t kv_peak_bytes = 0;  // of the cache while a prompt of so many tokens is computed; exact
  // An estimate: activations of a prompt that fills the context, tokenizer, program.
  uint64_t workspace_bytes = 0;
  uint64_t total_bytes() const { return weight_bytes + kv_peak_bytes + workspace_bytes; }
};

// The context length that the file states; Error when it states none or 0.
uint64_t trained_context_tokens(const GgufFile& file);

// For a context of n tokens, before anything is loaded. Throws Error when the metadata do not allow it.
MemoryPrediction predict_memory(const GgufFile& file, uint64_t n_tokens, const Recipe& recipe);

}  // namespace quire
