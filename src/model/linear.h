// Products of activations with packed weights, shared out over a team. Internal to the room.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include "base/team.h"
#include "kernels/ops.h"
#include "kernels/pack.h"
#include "model/model.h"

namespace quire {

// The rows of up to a few hundred tokens, in the forms that the products ahead read.
struct Activations {
  size_t n_tokens = 0;
  size_t columns = 0;
  const float* floats = nullptr;   // [n_tokens][columns]
  const uint8_t* tiles = nullptr;  // quantized (panel.h), tiles of tile_tokens()

  // A single token gets tiles of one, so that decode does no padded work.
  int tile_tokens() const { return n_tokens == 1 ? 1 : kTileTokens; }
  size_t n_tiles() const { return (n_tokens + static_cast<size_t>(tile_tokens()) - 1) / tile_tokens(); }
};

// Bytes of the quantized tiles of n_tokens.
inline size_t tiles_bytes(size_t n_tokens, size_t columns) {
  const size_t padded = n_tokens == 1 ? 1 : (n_tokens + kTileTokens - 1) / kTileTokens * kTileTokens;
  return (columns / kBlockColumns) * kActivationBlockBytes * padded;
}

// Whether a product of this matrix reads quantized tiles.
inline bool reads_tiles(const PackedMatrix& matrix, Precision precision) {
  return precision == Precision::kFast && matrix.is_quantized();
}

// out [n][ldo] (= or +=) activations * matrix^T.
struct Product {
  const PackedMatrix* matrix;
  float* out;
  size_t ldo;
  bool accumulate = false;
};

// One panel of the matrix times the tokens of one tile; out at the tile's first token and the panel's first
// row.
void multiply_panel(const PackedMatrix& matrix, Precision precision, const Activations& activations,
                    size_t panel, size_t tile, float* out, size_t ldo, bool accumulate);

// All products, side by side; every member of the team calls it.
void multiply(Worker& worker, Precision precision, const Activations& activations,
              std::initializer_list<Product> products);

}  // namespace quire
