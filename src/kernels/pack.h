// Repacks weights from the file's blocks into panels (panel.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/memory.h"
#include "base/team.h"
#include "kernels/panel.h"
#include "weights/tensor_type.h"

namespace quire {

// A weight matrix in panels of 16 rows; rows past the end of the last panel are zeros.
struct PackedMatrix {
  PanelKind kind = PanelKind::kF32;
  size_t n_rows = 0;
  size_t n_columns = 0;
  size_t panel_bytes = 0;
  Memory data;

  bool empty() const { return n_rows == 0; }
  bool is_quantized() const { return kind < PanelKind::kF32; }
  size_t n_panels() const { return (n_rows + kPanelRows - 1) / kPanelRows; }
  const uint8_t* panel(size_t i) const { return data.as<uint8_t>() + i * panel_bytes; }

  // One row as f32, out [n_columns].
  void unpack_row(size_t row, float* out) const;
};

PanelKind panel_kind(TensorType type);

// Bytes of a panel of n_columns columns.
size_t panel_bytes(PanelKind kind, size_t n_columns);

// rows [n_rows][n_columns] in the blocks of `type`, one after the other. Row r of the result is row
// order[r] of the source; an empty order keeps it.
PackedMatrix pack(TensorType type, const std::byte* rows, size_t n_rows, size_t n_columns, Team& team,
                  std::span<const uint32_t> order = {});

}  // namespace quire
