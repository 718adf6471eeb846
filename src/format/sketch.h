// The Gaussian matrix of the product codes (turbo_prod.h): the same numbers on every machine.
#pragma once

#include <cstdint>
#include <vector>

namespace quire {

// [head_dim][head_dim] of independent N(0, 1); codes depend on every bit of it.
std::vector<float> make_sketch(uint64_t seed, int head_dim);

}  // namespace quire
