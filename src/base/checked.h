// Arithmetic on sizes that come from files: an overflow is an Error, never a small number.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/error.h"

namespace quire {

// a * b, or Error naming `what`.
inline uint64_t checked_mul(uint64_t a, uint64_t b, const char* what) {
  uint64_t product = 0;
  if (__builtin_mul_overflow(a, b, &product)) throw Error(std::string(what) + " is too large");
  return product;
}

// a + b, or Error naming `what`.
inline uint64_t checked_add(uint64_t a, uint64_t b, const char* what) {
  uint64_t sum = 0;
  if (__builtin_add_overflow(a, b, &sum)) throw Error(std::string(what) + " is too large");
  return sum;
}

}  // namespace quire
