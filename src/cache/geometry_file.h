// The shape of a model's cache in a file, u32 numbers:
//
//   layers, query heads, head size | the KV heads of each layer
//
// and, of a model with windows or a soft cap of scores, behind them
//
//   the window of each layer, 0: none | the cap as f32, 0: none
#pragma once

#include <cstdint>
#include <vector>

#include "base/section_file.h"
#include "cache/geometry.h"

namespace quire {

std::vector<uint32_t> geometry_values(const Geometry& geometry);
// Throws Error for a section that is no shape of a model.
Geometry read_geometry(const SectionFile& file);

}  // namespace quire
