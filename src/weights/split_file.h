// Split models (llama-gguf-split): we refuse them, and say what has to be merged. Internal to the room.
#pragma once

#include <cstdint>
#include <string>

namespace quire {

// The sentence for a file that is part `part` (from 0) of `n_parts`; names parts that are not beside it.
std::string describe_split(const std::string& path, uint64_t part, uint64_t n_parts);

}  // namespace quire
