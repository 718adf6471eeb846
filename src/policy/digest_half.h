// Numbers of 16 bits in digests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace quire {

// The largest finite one of IEEE.
constexpr float kLargestDigestHalf = 65504.0f;

// The i-th of those that lie at `at`.
inline void put_digest_half(std::byte* at, size_t i, uint16_t half) {
  std::memcpy(at + i * sizeof half, &half, sizeof half);
}

}  // namespace quire
