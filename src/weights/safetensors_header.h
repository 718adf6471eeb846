// The JSON of a safetensors header. Internal to the room.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "weights/safetensors.h"

namespace quire {

// As written, nothing checked against the data.
struct SafetensorsEntry {
  std::string name;
  std::string dtype;
  std::vector<uint64_t> shape;
  uint64_t begin = 0, end = 0;
};

struct SafetensorsHeader {
  SafetensorsMetadata metadata;
  std::vector<SafetensorsEntry> tensors;
};

// Of JSON only this shape is known, so nothing nests without end; every key may stand once. Throws Error
// "PATH: ..." that names the byte of the header.
SafetensorsHeader parse_safetensors_header(std::string_view text, const std::string& path);

}  // namespace quire
