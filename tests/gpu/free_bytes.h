// What the device has free.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

namespace quire::test {

inline size_t free_bytes() {
  size_t free = 0;
  size_t all = 0;
  cudaMemGetInfo(&free, &all);
  return free;
}

}  // namespace quire::test
