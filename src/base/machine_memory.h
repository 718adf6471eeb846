// How much memory there is for a process at most.
#pragma once

#include <cstdint>

namespace quire {

// The machine's memory, or what its container allows where that is less; 0 where the system does not tell.
uint64_t machine_memory_bytes();

}  // namespace quire
