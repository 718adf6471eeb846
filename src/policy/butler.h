// The learned predictor of TokenButler (arXiv 2503.07518 v2): which tokens the next layers will attend to,
// told by the hidden state of an earlier layer.
//
// Producers stand at layers 0, G, 2G, ... (G: the stride). The producer at layer p serves the layers p + 1 to
// p + G, the last one fewer where the model ends: it reads the input of the attention of layer p, which is
// the residual stream behind that layer's RMS norm and weight, in training and at run time alike, and gives
// each query head of each of these layers an importance query of d' values:
//
//   x = LayerNorm(input)            norm_weight, norm_bias, over `width`
//   y = SiLU(x in^T)                in  [hidden][width]
//   i = y out^T                     out [slot < n_slots][query head][d'][hidden]
//
// Cached keys, rotated by RoPE as attention sees them, are projected per layer and KV head, and the score of
// a token for a query head is (i . k P) / sqrt(d'). Layer 0 has no producer before it and reads everything;
// it has no projection.
#pragma once

#include <cstddef>
#include <vector>

namespace quire {

struct ButlerGeometry {
  size_t n_layers = 0;
  size_t n_heads = 0;     // query heads of a layer
  size_t n_kv_heads = 0;  // of every layer
  size_t head_dim = 0;
  size_t width = 0;   // of the residual stream
  size_t stride = 4;  // G
  size_t dim = 16;    // d'
  size_t hidden = 128;

  bool operator==(const ButlerGeometry&) const = default;

  // Of at least two layers.
  size_t n_producers() const { return (n_layers - 2) / stride + 1; }
  size_t producer_layer(size_t producer) const { return producer * stride; }
  // The producer that serves a layer from 1 on, and the layer's slot there.
  size_t producer_of(size_t layer) const { return (layer - 1) / stride; }
  size_t slot_of(size_t layer) const { return (layer - 1) % stride; }
  // Layers that a producer serves.
  size_t n_slots(size_t producer) const {
    const size_t first = producer_layer(producer) + 1;
    return first + stride <= n_layers ? stride : n_layers - first;
  }
  size_t query_values(size_t producer) const { return n_slots(producer) * n_heads * dim; }
  size_t n_parameters() const;
  // Of these, the producer's.
  size_t producer_parameters(size_t producer) const {
    return 2 * width + hidden * width + query_values(producer) * hidden;
  }
};

struct ButlerProducer {
  std::vector<float> norm_weight, norm_bias;  // [width]
  std::vector<float> in;                      // [hidden][width]
  std::vector<float> out;                     // [n_slots][n_heads][dim][hidden]
};

struct ButlerWeights {
  ButlerGeometry geometry;
  std::vector<ButlerProducer> producers;
  // Of layer 1 on: [layer - 1] -> [n_kv_heads][head_dim][dim].
  std::vector<std::vector<float>> projections;

  // Whether the geometry is one that there can be, and every vector has the length that it says.
  bool is_whole() const;

  // All zero but for norm_weight, which is one.
  static ButlerWeights zeros(const ButlerGeometry& geometry);
};

// What LayerNorm adds to the variance.
constexpr float kButlerNormEpsilon = 1e-5f;

}  // namespace quire
