// The parts that ModelConfig::read() is made of. Internal to the room.
#pragma once

#include "model/config.h"
#include "model/model_keys.h"

namespace quire {

// Heads, scales, soft caps and windows; config has its family, layers and width.
void read_attention(ModelKeys& keys, ModelConfig& config);

// Positions, from keys, tensors and overrides; config has its heads, windows and trained context. Settles the
// context.
void read_rope(ModelKeys& keys, const RopeOverrides& overrides, ModelConfig& config);

}  // namespace quire
