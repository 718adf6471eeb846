// How config.json describes RoPE: rope_theta and rope_scaling of older releases, rope_parameters of newer
// ones. Internal to the room; for folder_config.cpp.
#pragma once

#include "weights/folder_config.h"
#include "weights/json_text.h"

namespace quire {

constexpr uint64_t kMostFolderTokens = 0xffffffff;  // GGUF has them as u32

// `config` has its family, head_dim and context_tokens already.
FolderRope read_folder_rope(const JsonReader& json, const FolderConfig& config);

}  // namespace quire
