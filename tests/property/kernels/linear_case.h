// Runs the kernels of a packed matrix over tokens, as the model does.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "base/team.h"
#include "kernels/ops.h"
#include "kernels/pack.h"
#include "property/random_rows.h"

namespace quire::test {

// Quantized tiles of tile_tokens tokens, one after the other.
inline std::vector<uint8_t> quantized(const Ops& table, const float* x, size_t columns, size_t n_tokens,
                                      size_t tile_tokens) {
  const size_t n_tiles = (n_tokens + tile_tokens - 1) / tile_tokens;
  const size_t tile_bytes = columns / kBlockColumns * kActivationBlockBytes * tile_tokens;
  std::vector<uint8_t> tiles(n_tiles * tile_bytes, 0xa5);
  for (size_t tile = 0; tile < n_tiles; ++tile) {
    const size_t first = tile * tile_tokens;
    const size_t count = std::min(tile_tokens, n_tokens - first);
    table.quantize_tile(x + first * columns, columns, static_cast<int>(count), static_cast<int>(tile_tokens),
                        static_cast<int>(columns), tiles.data() + tile * tile_bytes);
  }
  return tiles;
}

// One block of one token in a tile, decoded by the drawing in panel.h.
struct ActivationBlock {
  int codes[kBlockColumns];
  float scale;
  float sum;
  float sum_first;
  float sum_second;

  double value(size_t i) const { return static_cast<double>(scale) * codes[i]; }
};

inline ActivationBlock read_block(const uint8_t* tile, size_t block, size_t tile_tokens, size_t token) {
  const uint8_t* at = tile + block * kActivationBlockBytes * tile_tokens;
  const uint8_t* high = at + token * kBlockColumns;
  const uint8_t* low = high + tile_tokens * kBlockColumns;
  ActivationBlock result;
  for (int i = 0; i < kBlockColumns; ++i) {
    result.codes[i] = 256 * static_cast<int8_t>(high[i]) + static_cast<int8_t>(low[i]);
  }
  const auto number = [&](size_t i) {
    float value = 0;
    std::memcpy(&value, at + 2 * tile_tokens * kBlockColumns + (i * tile_tokens + token) * sizeof value,
                sizeof value);
    return value;
  };
  result.scale = number(0);
  result.sum = number(1);
  result.sum_first = number(2);
  result.sum_second = number(3);
  return result;
}

struct LinearRun {
  const Ops& table;
  const PackedMatrix& matrix;
  bool fast;           // quantized activations where the matrix is quantized
  size_t tile_tokens;  // 1 or kTileTokens
  bool accumulate;

  bool reads_tiles() const { return fast && matrix.is_quantized(); }

  // x [n_tokens][n_columns] -> out [n_tokens][ldo]
  void operator()(const std::vector<float>& x, size_t n_tokens, float* out, size_t ldo) const {
    std::vector<uint8_t> tiles;
    if (reads_tiles()) tiles = quantized(table, x.data(), matrix.n_columns, n_tokens, tile_tokens);
    for (size_t first = 0; first < n_tokens; first += tile_tokens) {
      const void* source = x.data() + first * matrix.n_columns;
      if (reads_tiles())
        source = tiles.data() + first * (matrix.n_columns / kBlockColumns) * kActivationBlockBytes;
      for (size_t panel = 0; panel < matrix.n_panels(); ++panel) {
        run_panel(source, panel, std::min(tile_tokens, n_tokens - first), out + first * ldo, ldo);
      }
    }
  }

 private:
  void run_panel(const void* source, size_t panel, size_t count, float* out, size_t ldo) const {
    LinearArgs args{};
    args.panel = matrix.panel(panel);
    args.activations = source;
    args.lda = matrix.n_columns;
    args.columns = static_cast<int>(matrix.n_columns);
    args.tile_tokens = static_cast<int>(tile_tokens);
    args.n_tokens = static_cast<int>(count);
    args.n_rows = static_cast<int>(std::min<size_t>(kPanelRows, matrix.n_rows - panel * kPanelRows));
    args.out = out + panel * kPanelRows;
    args.ldo = ldo;
    args.accumulate = accumulate;
    const auto kind = static_cast<size_t>(matrix.kind);
    (reads_tiles() ? table.linear_fast : table.linear_precise)[kind](args);
  }
};

inline PackedMatrix packed(TensorType type, const RandomRows& rows, size_t n_rows, size_t n_columns) {
  Team team(1);
  return pack(type, rows.bytes.data(), n_rows, n_columns, team);
}

}  // namespace quire::test
