#include "study/dense.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "engine/random.h"

namespace quire {
namespace {

// a = l l^T in the lower half. Pivots are kept from vanishing.
void cholesky(std::vector<double>& a, size_t n, double least) {
  for (size_t j = 0; j < n; ++j) {
    double* row = a.data() + j * n;
    for (size_t k = 0; k < j; ++k) {
      const double* other = a.data() + k * n;
      double sum = row[k];
      for (size_t i = 0; i < k; ++i) sum -= row[i] * other[i];
      row[k] = sum / other[k];
    }
    double sum = row[j];
    for (size_t i = 0; i < j; ++i) sum -= row[i] * row[i];
    row[j] = std::sqrt(std::max(sum, least));
  }
}

void add_scaled(double factor, const double* from, size_t n, double* to) {
  for (size_t i = 0; i < n; ++i) to[i] += factor * from[i];
}

// Rows p and q of `rows` [..][n], turned.
void rotate_rows(double* p, double* q, size_t n, double c, double s) {
  for (size_t i = 0; i < n; ++i) {
    const double x = p[i], y = q[i];
    p[i] = c * x - s * y;
    q[i] = s * x + c * y;
  }
}

void rotate(std::vector<double>& a, std::vector<double>& vectors, size_t n, size_t p, size_t q) {
  const double off = a[p * n + q];
  if (off == 0) return;
  const double theta = (a[q * n + q] - a[p * n + p]) / (2 * off);
  const double t = (theta >= 0 ? 1 : -1) / (std::fabs(theta) + std::hypot(theta, 1.0));
  const double c = 1 / std::hypot(t, 1.0);
  const double s = t * c;
  rotate_rows(a.data() + p * n, a.data() + q * n, n, c, s);
  for (size_t i = 0; i < n; ++i) {
    const double x = a[i * n + p], y = a[i * n + q];
    a[i * n + p] = c * x - s * y;
    a[i * n + q] = s * x + c * y;
  }
  rotate_rows(vectors.data() + p * n, vectors.data() + q * n, n, c, s);
}

// Twice, as once leaves what rounding made.
void orthonormalise(std::vector<double>& rows, size_t k, size_t n) {
  for (size_t i = 0; i < k; ++i) {
    double* row = rows.data() + i * n;
    for (int pass = 0; pass < 2; ++pass) {
      for (size_t j = 0; j < i; ++j) {
        const double* other = rows.data() + j * n;
        add_scaled(-std::inner_product(row, row + n, other, 0.0), other, n, row);
      }
      const double norm = std::sqrt(std::inner_product(row, row + n, row, 0.0));
      if (norm > 0) std::for_each(row, row + n, [norm](double& value) { value /= norm; });
    }
  }
}

}  // namespace

std::vector<double> solve_ridge(std::vector<double> a, std::vector<double> b, size_t n, size_t m,
                                double ridge) {
  QUIRE_CHECK(a.size() == n * n && b.size() == n * m);
  double mean = 0;
  for (size_t i = 0; i < n; ++i) mean += a[i * n + i] / static_cast<double>(n);
  if (!(mean > 0)) return std::vector<double>(n * m, 0.0);
  for (size_t i = 0; i < n; ++i) a[i * n + i] += ridge * mean;
  cholesky(a, n, 1e-12 * mean);
  for (size_t i = 0; i < n; ++i) {
    double* row = b.data() + i * m;
    for (size_t k = 0; k < i; ++k) add_scaled(-a[i * n + k], b.data() + k * m, m, row);
    for (size_t j = 0; j < m; ++j) row[j] /= a[i * n + i];
  }
  for (size_t i = n; i-- > 0;) {
    double* row = b.data() + i * m;
    for (size_t k = i + 1; k < n; ++k) add_scaled(-a[k * n + i], b.data() + k * m, m, row);
    for (size_t j = 0; j < m; ++j) row[j] /= a[i * n + i];
  }
  return b;
}

Eigen symmetric_eigen(std::vector<double> a, size_t n) {
  QUIRE_CHECK(a.size() == n * n);
  constexpr int kMostSweeps = 30;
  std::vector<double> vectors(n * n, 0.0);
  for (size_t i = 0; i < n; ++i) vectors[i * n + i] = 1;
  for (int sweep = 0; sweep < kMostSweeps; ++sweep) {
    double off = 0, all = 0;
    for (size_t i = 0; i < n * n; ++i) {
      all += a[i] * a[i];
      if (i / n != i % n) off += a[i] * a[i];
    }
    if (off <= 1e-24 * all) break;
    for (size_t p = 0; p < n; ++p) {
      for (size_t q = p + 1; q < n; ++q) rotate(a, vectors, n, p, q);
    }
  }
  std::vector<size_t> order(n);
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t i, size_t j) { return a[i * n + i] > a[j * n + j]; });
  Eigen eigen;
  for (const size_t i : order) {
    eigen.values.push_back(a[i * n + i]);
    eigen.vectors.insert(eigen.vectors.end(), vectors.begin() + static_cast<ptrdiff_t>(i * n),
                         vectors.begin() + static_cast<ptrdiff_t>((i + 1) * n));
  }
  return eigen;
}

std::vector<double> leading_subspace(const std::vector<double>& a, size_t n, size_t k, int n_rounds) {
  QUIRE_CHECK(a.size() == n * n && k <= n);
  Random random(1);
  std::vector<double> rows(k * n);
  for (double& value : rows) value = random.uniform() - 0.5;
  orthonormalise(rows, k, n);
  std::vector<double> next(k * n);
  for (int round = 0; round < n_rounds; ++round) {
    std::fill(next.begin(), next.end(), 0.0);
    for (size_t i = 0; i < k; ++i) {
      for (size_t j = 0; j < n; ++j) add_scaled(rows[i * n + j], a.data() + j * n, n, next.data() + i * n);
    }
    rows.swap(next);
    orthonormalise(rows, k, n);
  }
  return rows;
}

}  // namespace quire
