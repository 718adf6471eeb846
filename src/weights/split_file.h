// Split models, as llama-gguf-split and gguf-py write them: NAME-00001-of-00003.gguf and its fellows. All of
// the metadata is in the first part; every part has tensors of its own and the keys
//   split.no              this part, from 0
//   split.count           parts
//   split.tensors.count   tensors of all parts together
// Internal to the room.
#pragma once

#include <cstdint>
#include <string>

#include "weights/gguf.h"

namespace quire {

// "this is part 2 of 3 of a split model" for `part` 1 of 3.
std::string describe_part(uint64_t part, uint64_t n_parts);

bool is_part_of_split(const GgufFile& file);

// The whole model that the file `part` belongs to. The other parts are found beside it by their names. Throws
// Error when one is missing, of another model, or has a tensor that another one has too.
GgufFile join_split(GgufFile part);

}  // namespace quire
