// The _K types of quantize.h, whose scales are searched for. Internal to the room.
#pragma once

#include <cstdint>

namespace quire {

// One block of 256 values; false as quantize_row().
bool encode_q4_k(const float* values, uint8_t* block);
bool encode_q5_k(const float* values, uint8_t* block);
bool encode_q6_k(const float* values, uint8_t* block);

}  // namespace quire
