// All bytes that a cache has of its rows.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "cache/cache.h"

namespace quire::test {

inline std::vector<std::byte> bytes_of(const Cache& cache) {
  std::vector<std::byte> bytes;
  for (size_t layer = 0; layer < cache.store().n_layers(); ++layer) {
    cache.store().visit_blocks(layer, [&](std::span<const std::byte> block) {
      bytes.insert(bytes.end(), block.begin(), block.end());
    });
  }
  return bytes;
}

}  // namespace quire::test
