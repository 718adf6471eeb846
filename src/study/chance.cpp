#include "study/chance.h"

#include <numeric>

#include "base/error.h"

namespace quire {

std::vector<size_t> choose(Random& random, size_t n, size_t k) {
  QUIRE_CHECK(k <= n);
  std::vector<size_t> all(n);
  std::iota(all.begin(), all.end(), size_t{0});
  for (size_t i = 0; i < k; ++i) std::swap(all[i], all[i + below(random, n - i)]);
  all.resize(k);
  return all;
}

Random random_of(uint64_t seed, uint64_t a, uint64_t b) {
  return Random(Random(Random(seed).next() + a).next() + b);
}

}  // namespace quire
