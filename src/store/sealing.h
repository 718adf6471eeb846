// Coding of one open page of one KV head. Internal to the room.
#pragma once

#include <cstddef>

#include "format/row_format.h"
#include "format/side_format.h"
#include "store/head_frames.h"

namespace quire {

// open: 64 keys [head_dim][64] in `open_format`, of the positions from first_position on; index and coded:
// key_page_bytes(format, head_dim), of which the index has index_page_bytes.
void seal_keys(Format open_format, const SideFormat& format, const HeadFrames& frames, size_t head_dim,
               size_t first_position, const std::byte* open, std::byte* index, std::byte* coded);
// open: 64 values [64][head_dim]; coded: value_page_bytes(format, head_dim).
void seal_values(Format open_format, const SideFormat& format, const HeadFrames& frames, size_t head_dim,
                 const std::byte* open, std::byte* coded);

}  // namespace quire
