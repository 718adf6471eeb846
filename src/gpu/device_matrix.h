// A weight matrix on the device.
#pragma once

#include <cstdint>

namespace quire::gpu {

struct DeviceMatrix {
  const uint16_t* data = nullptr;  // bf16 [rows][columns], 16-byte aligned
  int rows = 0;
  int columns = 0;  // a multiple of kColumnUnit
};

// Columns that a quarter of a warp reads together.
constexpr int kColumnUnit = 32;
// Rows that a thread block multiplies.
constexpr int kTileRows = 16;

inline int row_tiles(int rows) { return (rows + kTileRows - 1) / kTileRows; }

}  // namespace quire::gpu
