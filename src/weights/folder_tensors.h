// The tensors of a model folder: what transformers calls them, what GGUF does, and the shapes that
// config.json wants. Internal to the room.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "weights/folder_config.h"
#include "weights/safetensors.h"

namespace quire {

// A tensor of one of the folder's files.
struct FolderTensor {
  Safetensor tensor;
  const std::string* file;  // its path, for sentences
  const std::byte* begin;   // of the file's bytes
};

// Adds the GGUF tensors of all of the folder's to `parts`, whose `files` hold the data. Every tensor of the
// folder is used once or left out by a rule: rotary inv_freq buffers, an output matrix that repeats the
// embedding to which it is tied, and the vision tower (with a note). Throws Error that names what is missing,
// unexpected, of another shape or type.
void add_folder_tensors(const FolderConfig& config, std::vector<FolderTensor> tensors,
                        const std::string& folder, ModelParts& parts);

}  // namespace quire
