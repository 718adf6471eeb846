// What codes need to know before they see a row: the frames of every layer and KV head, and the codebooks.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include "cache/geometry.h"
#include "cache/recipe.h"
#include "format/key_bias.h"
#include "policy/butler.h"
#include "store/head_frames.h"

namespace quire {

// Measured once per model (engine/calibrate.h) and kept by its fingerprint: the means of keys and values, the
// balance of keys against queries, and what channels add to scores: the mean of |q k|, each token with
// itself, over tokens and the query heads of the group. [layer][kv_head][head_dim] each.
struct Calibration {
  Geometry geometry;
  std::vector<float> key_mean;
  std::vector<float> key_balance;
  std::vector<float> value_mean;
  std::vector<float> query_key;
};

// The key biases of a model that codes of few bits would not survive (ADR 9), of all KV heads, layer by
// layer. Heads without one are coded as they are.
struct KeyBiases {
  std::vector<std::optional<KeyBias>> heads;
};

// Radians per position of the rotated pairs of channels, of a head's half-split order.
using RopeFrequencies = std::vector<double>;

// What caches know of their model beside its shape. nullptr: it is not known, or there is none.
struct ModelFacts {
  std::shared_ptr<const Calibration> calibration = nullptr;
  std::shared_ptr<const KeyBiases> key_biases = nullptr;
  std::shared_ptr<const RopeFrequencies> rope_frequencies = nullptr;  // what keep=window turns queries by
  std::shared_ptr<const ButlerWeights> butler = nullptr;              // the trained predictor
  size_t width = 0;  // of the residual stream, which the predictor reads; 0: not known
};

// The frames and tables of one recipe. Immutable, shared by a cache and its forks. A row's code depends on
// the row, its layer, head and position, and the model (calibration, key biases) alone.
class CacheStatistics {
 public:
  // Throws Error where the recipe is calibrated and there is no calibration, or one of another shape.
  CacheStatistics(const Recipe& recipe, const Geometry& geometry, ModelFacts facts);

  // What a recipe's prompt statistics give is not in it.
  HeadFrames frames(size_t layer, size_t kv_head) const;
  // Some head's coded keys are freed of a bias, whose share of a score hangs on the position.
  bool has_key_bias(size_t layer) const;
  const ModelFacts& facts() const { return facts_; }

 private:
  struct Signs {
    std::vector<float> key;
    std::vector<float> value;
  };

  Recipe recipe_;
  size_t head_dim_;
  ModelFacts facts_;
  std::vector<size_t> first_head_;  // [layer] index of the layer's head 0 among all heads
  std::vector<Signs> signs_;        // of all heads, where rows are rotated
  std::vector<float> key_sketch_;
  std::vector<float> value_sketch_;
  Codebook key_book_{};
  Codebook value_book_{};
};

}  // namespace quire
