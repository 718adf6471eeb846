// The model families that Quire runs: what each one's layers consist of, and what its files leave unsaid.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace quire {

enum class Activation : uint8_t {
  kSilu,
  kGelu,  // by its tanh formula
};

// Of the projections to queries, keys and values.
enum class Biases : uint8_t { kNone, kOptional, kRequired };

// A tensor of a layer that its family does not name, or lacks, is refused by name when the model is loaded.
struct ModelFamily {
  const char* architecture;  // general.architecture
  const char* models;        // whose it is, for readers

  // The rows of a query or key head are stored so that rotated pairs are neighbours (2i, 2i + 1), not half a
  // rotation apart.
  bool neighbouring_pairs = false;
  bool fused = false;  // attn_qkv holds q, k and v, and ffn_up the gate and up
  Biases biases = Biases::kNone;
  bool head_norms = false;  // RMS norm of each head of queries and keys, before RoPE
  bool post_norms = false;  // RMS norm of what attention and the feed-forward part add to the stream
  Activation activation = Activation::kSilu;
  bool scales_embedding = false;  // by the square root of the width

  // Where the file does not say: the window of layers that have one (0: none has), and which ones do: all but
  // each n-th layer (0: all).
  size_t window_tokens = 0;
  size_t window_period = 0;
  // Layers with a window turn by this base, unscaled (0: all layers turn alike).
  double window_rope_base = 0;
  // 0: none.
  double score_softcap = 0;
  double logit_softcap = 0;
  // The model of so many layers scales queries by 1 / sqrt(width / heads) instead of 1 / sqrt(head_dim).
  size_t wide_query_layers = 0;

  // Tensors that every layer has at least.
  size_t tensors_per_layer() const { return fused ? 6 : 9; }
};

std::span<const ModelFamily> families();
// nullptr where there is none of that name.
const ModelFamily* find_family(std::string_view architecture);
// "llama, qwen2, ..."
std::string family_names();

}  // namespace quire
