// Maps that tell Hopper's copy engine where bytes lie.
#pragma once

#include <cuda.h>
#include <stdint.h>

namespace quire::cuda {

// Of bytes in four dimensions (byte of a row, row, head, page), `strides` those of the last three; multiples
// of 16, as is `data`. A box is n_rows times line_bytes; lines of 64 and of 128 bytes have their pieces
// exchanged as device/streamed_rows.cuh says. Throws DeviceError where the driver refuses.
CUtensorMap map_of_boxes(const uint8_t* data, const cuuint64_t (&sizes)[4], const cuuint64_t (&strides)[3],
                         int line_bytes, int n_rows);

}  // namespace quire::cuda
