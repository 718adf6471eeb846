#include "format/lloyd_max.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace quire {
namespace {

// Beyond this many standard deviations no density here has mass that a double would notice in a sum.
constexpr double kReach = 9.0;
constexpr int kPanels = 16;  // a cell, each by the five-point rule of Gauss and Legendre on [-1, 1]
constexpr double kNodes[] = {-0.9061798459386640, -0.5384693101056831, 0.0, 0.5384693101056831,
                             0.9061798459386640};
constexpr double kWeights[] = {0.2369268850561891, 0.4786286704993665, 0.5688888888888889, 0.4786286704993665,
                               0.2369268850561891};
constexpr int kRounds = 20000;
constexpr double kSettled = 1e-13;

// exp(-x^2 / 2) as a power of a short series.
double gauss(double x) {
  const double y = x * x / 2048.0;  // x^2 / 2 halved ten times: below 0.071
  double value = 1.0;
  for (int k = 12; k > 0; --k) value = 1.0 - y / k * value;
  for (int k = 0; k < 10; ++k) value *= value;
  return value;
}

// base^(twice / 2)
double half_power(double base, int twice) {
  double value = twice % 2 != 0 ? std::sqrt(base) : 1.0;
  for (int n = twice / 2; n > 0; n /= 2) {
    if (n % 2 != 0) value *= base;
    base *= base;
  }
  return value;
}

struct Moments {
  double mass = 0.0;
  double first = 0.0;
  double second = 0.0;
};

template <class Density>
Moments moments(const Density& density, double low, double high) {
  const double half = 0.5 * (high - low) / kPanels;
  Moments sum;
  for (int panel = 0; panel < kPanels; ++panel) {
    for (int i = 0; i < 5; ++i) {
      const double x = low + half * (2 * panel + 1 + kNodes[i]);
      const double mass = half * kWeights[i] * density(x);
      sum.mass += mass;
      sum.first += mass * x;
      sum.second += mass * x * x;
    }
  }
  return sum;
}

// Centroids are the means of their cells, thresholds half-way between centroids, in turns until both settle.
// The density (not necessarily of mass 1) lies on [0, end] and is about `width` wide.
template <class Density>
Quantizer solve(const Density& density, double width, double end, int n_cells) {
  Quantizer quantizer;
  for (int i = 0; i < n_cells; ++i) quantizer.centroids.push_back(3.0 * width * (i + 0.5) / n_cells);
  quantizer.thresholds.resize(static_cast<size_t>(n_cells - 1));
  const auto edge = [&](int i) {
    return i == 0 ? 0.0 : i == n_cells ? end : quantizer.thresholds[static_cast<size_t>(i - 1)];
  };
  Moments total;
  for (int round = 0; round < kRounds; ++round) {
    for (size_t i = 0; i + 1 < quantizer.centroids.size(); ++i) {
      quantizer.thresholds[i] = 0.5 * (quantizer.centroids[i] + quantizer.centroids[i + 1]);
    }
    double moved = 0.0;
    double kept = 0.0;
    total = Moments();
    for (int i = 0; i < n_cells; ++i) {
      const Moments cell = moments(density, edge(i), edge(i + 1));
      const double mean = cell.first / cell.mass;
      double& centroid = quantizer.centroids[static_cast<size_t>(i)];
      moved = std::max(moved, std::abs(mean - centroid));
      centroid = mean;
      kept += cell.first * mean;  // E (x - c)^2 = E x^2 - c E x, c being the mean
      total.second += cell.second;
    }
    quantizer.distortion = 1.0 - kept / total.second;
    if (moved < kSettled * width) break;
  }
  return quantizer;
}

}  // namespace

Quantizer normal_quantizer(int bits) { return solve(gauss, 1.0, kReach, 1 << (bits - 1)); }

// f(x) ~ (1 - x^2)^((d - 3) / 2)
Quantizer coordinate_quantizer(int bits, int head_dim) {
  const double width = std::sqrt(1.0 / head_dim);
  const auto density = [=](double x) { return half_power(1.0 - x * x, head_dim - 3); };
  return solve(density, width, std::min(1.0, kReach * width), 1 << (bits - 1));
}

// r^2 is Beta(1, (d - 2) / 2), so f(r) ~ r (1 - r^2)^((d - 4) / 2)
Quantizer pair_quantizer(int bits, int head_dim) {
  const double width = std::sqrt(1.0 / head_dim);
  const auto density = [=](double r) { return r * half_power(1.0 - r * r, head_dim - 4); };
  return solve(density, width, std::min(1.0, kReach * width), 1 << bits);
}

Codebook make_codebook(CodebookSpec spec, int head_dim) {
  Codebook book = {};
  if (spec.kind == CodebookKind::kNone) return book;
  const bool pair = spec.kind == CodebookKind::kPair;
  const Quantizer made =
      pair ? pair_quantizer(spec.bits, head_dim) : coordinate_quantizer(spec.bits, head_dim);
  const size_t n = made.centroids.size();
  QUIRE_CHECK(n <= 8);
  for (size_t m = 0; m < n; ++m) {
    const float centroid = static_cast<float>(made.centroids[m]);
    if (pair) {
      book.centroids[m] = centroid;
    } else {
      book.centroids[m] = -centroid;
      book.centroids[n + m] = centroid;
    }
    if (m + 1 < n) book.thresholds[m] = static_cast<float>(made.thresholds[m]);
  }
  return book;
}

}  // namespace quire
