// A model: weights packed for the kernels, and the forward pass over a Cache.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/team.h"
#include "cache/cache.h"
#include "kernels/pack.h"
#include "model/config.h"
#include "weights/gguf.h"

namespace quire {

// How products are computed.
enum class Precision : uint8_t {
  kFast,     // activations as 16-bit codes, one scale for 32 values
  kPrecise,  // activations in f32
};

// Vectors that are empty are steps that the model does not have.
struct Layer {
  std::vector<float> attention_norm;  // [width]
  PackedMatrix q, k, v;               // rows of a head in half-split order: pairs are (i, i + rope_dims / 2)
  std::vector<float> q_bias, k_bias, v_bias;  // in the order of the rows
  std::vector<float> q_norm, k_norm;          // [head_dim] in that order: RMS norms of single heads
  PackedMatrix output;
  std::vector<float> output_norm;  // [width] of what attention adds to the stream
  std::vector<float> ffn_norm;
  PackedMatrix gate, up, down;
  std::vector<float> down_norm;  // [width] of what the feed-forward part adds
};

// Sees the rows that attention works with while a forward pass computes them. Called by the pass on one
// thread, for every layer in order and for its tokens in order, in pieces.
class RowObserver {
 public:
  virtual ~RowObserver() = default;
  // What the attention of a layer reads, before its rows(): hidden states behind the layer's RMS norm and
  // weight, x [n][width]. Valid until it returns. Must not throw.
  virtual void attention_input(size_t /*layer*/, size_t /*position*/, size_t /*n*/, const float* /*x*/) {}
  // Rows of n tokens from `position` of the sequence on, q [n][ld], k and v [n][ld], the heads of a token
  // side by side. Queries and keys are rotated by RoPE, and queries carry the factor of the scores
  // (ModelConfig::query_scale). The rows are valid until it returns. Must not throw.
  virtual void rows(size_t layer, size_t position, size_t n, const float* q, const float* k, const float* v,
                    size_t ld) = 0;
};

// Everything a forward pass writes to, apart from the cache. Kept between calls; one per thread of control.
class Workspace {
 public:
  Workspace();
  ~Workspace();
  Workspace(Workspace&&) noexcept;
  Workspace& operator=(Workspace&&) noexcept;

 private:
  friend class Model;
  friend class ForwardPass;
  struct Buffers;
  std::unique_ptr<Buffers> buffers_;
};

// Immutable after load; any number of caches and workspaces may use it.
class Model {
 public:
  // Repacks the weights with the team; the file's pages are given back as it goes. Throws Error.
  static Model load(const GgufFile& file, Team& team, Precision precision = Precision::kFast,
                    const RopeOverrides& overrides = {});

  const ModelConfig& config() const { return config_; }
  Precision precision() const { return precision_; }
  uint64_t weight_bytes() const;
  // What every cache of the model is to be given: key biases that coded keys are freed of. nullptr: none.
  const std::shared_ptr<const KeyBiases>& key_biases() const { return key_biases_; }
  // [layer] |bias| of the layer's keys, as a share of their norm without it (model/key_bias.h), of the KV
  // head where it is largest; from kLeastKeyBiasRisk on it is among key_biases(). Empty: no layer has a key
  // bias.
  const std::vector<double>& key_bias_risks() const { return key_bias_risks_; }
  // Radians per position of each rotated pair, [rope_dims / 2], in layers that see all tokens.
  const std::vector<double>& rope_frequencies() const { return config_.rope.frequencies; }

  // Runs the tokens through all layers, layer by layer over the whole span, and appends them to the cache
  // behind what it holds. Their last hidden states stay in the workspace for logits().
  // Preconditions: ids are in the vocabulary, cache.n_tokens() + tokens.size() <= context.
  // `progress`, if given, is called on this thread with the share of the work done, 0 to 1, now and then;
  // `observer`, if given, with the rows of every layer.
  void forward(std::span<const int32_t> tokens, Cache& cache, Workspace& workspace, Team& team,
               const std::function<void(double)>& progress = {}, RowObserver* observer = nullptr) const;

  // Logits after the tokens `rows` (indices into the last forward's span), out [rows.size()][vocabulary].
  void logits(std::span<const size_t> rows, Workspace& workspace, Team& team, float* out) const;

 private:
  friend class ForwardPass;

  ModelConfig config_;
  Precision precision_ = Precision::kFast;
  PackedMatrix embedding_;  // also the output head when the file has none of its own
  PackedMatrix head_;       // empty: tied
  std::vector<float> output_norm_;
  std::vector<Layer> layers_;
  std::shared_ptr<const KeyBiases> key_biases_;
  std::vector<double> key_bias_risks_;
};

}  // namespace quire
