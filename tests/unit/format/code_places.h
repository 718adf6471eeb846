// Where panel_codes.h puts a code, worked out apart from it.
#pragma once

#include <cstdint>

namespace quire::test {

// Keys in steps of 16 tokens and 4 dims, values of 16 dims and 4 tokens.
template <int bits>
inline int key_code(const uint8_t* packs, int head_dim, int t, int d) {
  constexpr int steps = 8 / bits;  // of a pack; not for 3 bits
  const int quads = (head_dim + 4 * steps - 1) / (4 * steps) * steps;
  const int step = t / 16 * quads + d / 4;
  return packs[step / steps * 64 + t % 16 * 4 + d % 4] >> (step % steps * bits) & ((1 << bits) - 1);
}
template <int bits>
inline int value_code(const uint8_t* packs, int t, int d) {
  constexpr int steps = 8 / bits;
  const int step = d / 16 * 16 + t / 4;
  return packs[step / steps * 64 + d % 16 * 4 + t % 4] >> (step % steps * bits) & ((1 << bits) - 1);
}

}  // namespace quire::test
