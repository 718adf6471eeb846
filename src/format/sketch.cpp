#include "format/sketch.h"

#include <bit>
#include <cmath>

#include "format/frame.h"

namespace quire {
namespace {

// ln x for 0 < x < 1 by basic arithmetic: x = m 2^e with m in [1/2, 1), ln m = 2 artanh((m - 1) / (m + 1)).
double series_log(double x) {
  const uint64_t bits = std::bit_cast<uint64_t>(x);
  const int exponent = static_cast<int>(bits >> 52) - 1022;
  const double m = std::bit_cast<double>((bits & 0xfffffffffffffull) | 0x3fe0000000000000ull);
  const double z = (m - 1.0) / (m + 1.0);  // at most 1/3 in size
  double sum = 0.0;
  for (int k = 35; k >= 1; k -= 2) sum = sum * z * z + 1.0 / k;
  return 2.0 * z * sum + exponent * 0.693147180559945309;
}

// In (-1, 1).
double uniform(uint64_t seed, uint64_t index) {
  const uint64_t word = splitmix64(seed + index * 0x9e3779b97f4a7c15ull);
  return (static_cast<double>(word >> 11) + 0.5) * 0x1p-52 - 1.0;
}

}  // namespace

// Marsaglia's polar method: points of the square that fall in the unit circle give two numbers each.
std::vector<float> make_sketch(uint64_t seed, int head_dim) {
  const size_t n = static_cast<size_t>(head_dim) * static_cast<size_t>(head_dim);
  std::vector<float> sketch;
  sketch.reserve(n + 1);
  for (uint64_t index = 0; sketch.size() < n; index += 2) {
    const double x = uniform(seed, index);
    const double y = uniform(seed, index + 1);
    const double square = x * x + y * y;
    if (square >= 1.0 || square == 0.0) continue;
    const double factor = std::sqrt(-2.0 * series_log(square) / square);
    sketch.push_back(static_cast<float>(x * factor));
    sketch.push_back(static_cast<float>(y * factor));
  }
  sketch.resize(n);
  return sketch;
}

}  // namespace quire
