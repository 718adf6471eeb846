// Seeded random numbers that are the same on every machine and standard library.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace quire::test {

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}

  // SplitMix64.
  uint64_t next() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15ull);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
  }

  size_t below(size_t n) { return static_cast<size_t>(next() % n); }

  // In [0, 1).
  double unit() { return static_cast<double>(next() >> 11) * 0x1p-53; }

  double uniform(double low, double high) { return low + (high - low) * unit(); }

  double normal() {
    const double radius = std::sqrt(-2.0 * std::log(1.0 - unit()));
    return radius * std::cos(6.283185307179586 * unit());
  }

  std::vector<float> normals(size_t n, double scale = 1.0) {
    std::vector<float> values(n);
    for (float& value : values) value = static_cast<float>(normal() * scale);
    return values;
  }

 private:
  uint64_t state_;
};

}  // namespace quire::test
