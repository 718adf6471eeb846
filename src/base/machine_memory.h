// How much memory there is for a process: at most, and now.
#pragma once

#include <cstdint>

namespace quire {

// The machine's memory, or what its container allows where that is less; 0 where the system does not tell.
uint64_t machine_memory_bytes();
// What could be had now without another's being swapped out: what the system says, or what is left to the
// container with pages of files given back, where that is less. 0 where the system does not tell.
uint64_t available_memory_bytes();

}  // namespace quire
