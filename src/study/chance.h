// Choices at random for tasks that are made: the same for a seed on every machine.
#pragma once

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "engine/random.h"

namespace quire {

// Evenly in [0, n); n > 0.
inline size_t below(Random& random, size_t n) {
  return static_cast<size_t>(random.uniform() * static_cast<double>(n));
}

template <typename T>
const T& pick(Random& random, std::span<const T> values) {
  return values[below(random, values.size())];
}

// Fisher and Yates.
template <typename T>
void shuffle(Random& random, std::vector<T>& values) {
  for (size_t i = values.size(); i > 1; --i) std::swap(values[i - 1], values[below(random, i)]);
}

// k different numbers of [0, n), in random order; k <= n.
std::vector<size_t> choose(Random& random, size_t n, size_t k);

// A generator for one thing of many: different for different numbers, and for their order.
Random random_of(uint64_t seed, uint64_t a, uint64_t b = 0);

}  // namespace quire
