#include "study/dense.h"

#include <gtest/gtest.h>

#include <cmath>

#include "engine/random.h"

namespace quire {
namespace {

// B^T B of a random B: symmetric, positive semi-definite, of this rank.
std::vector<double> moment(size_t n, size_t rank, uint64_t seed) {
  Random random(seed);
  std::vector<double> b(rank * n), a(n * n, 0.0);
  for (double& value : b) value = random.uniform() - 0.5;
  for (size_t r = 0; r < rank; ++r) {
    for (size_t i = 0; i < n * n; ++i) a[i] += b[r * n + i / n] * b[r * n + i % n];
  }
  return a;
}

double row_product(const std::vector<double>& a, size_t i, const std::vector<double>& b, size_t j, size_t n) {
  double sum = 0;
  for (size_t k = 0; k < n; ++k) sum += a[i * n + k] * b[j * n + k];
  return sum;
}

TEST(Dense, EigenvectorsAreOrthonormalAndGiveTheMatrixBack) {
  for (const size_t n : {1u, 2u, 7u, 40u}) {
    const std::vector<double> a = moment(n, n / 2 + 1, n);
    const Eigen eigen = symmetric_eigen(a, n);
    std::vector<double> again(n * n, 0.0);
    for (size_t e = 0; e < n; ++e) {
      if (e > 0) {
        EXPECT_GE(eigen.values[e - 1], eigen.values[e]);
      }
      for (size_t f = 0; f < n; ++f) {
        EXPECT_NEAR(row_product(eigen.vectors, e, eigen.vectors, f, n), e == f ? 1 : 0, 1e-12);
      }
      for (size_t i = 0; i < n * n; ++i) {
        again[i] += eigen.values[e] * eigen.vectors[e * n + i / n] * eigen.vectors[e * n + i % n];
      }
    }
    for (size_t i = 0; i < n * n; ++i) EXPECT_NEAR(again[i], a[i], 1e-11);
  }
}

TEST(Dense, SolvesWhatItWasMadeFrom) {
  constexpr size_t kN = 20, kM = 3;
  const std::vector<double> a = moment(kN, 50, 1);
  Random random(2);
  std::vector<double> x(kN * kM), b(kN * kM, 0.0);
  for (double& value : x) value = random.uniform();
  for (size_t i = 0; i < kN; ++i) {
    for (size_t k = 0; k < kN; ++k) {
      for (size_t j = 0; j < kM; ++j) b[i * kM + j] += a[i * kN + k] * x[k * kM + j];
    }
  }
  const std::vector<double> solved = solve_ridge(a, b, kN, kM, 0);
  for (size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(solved[i], x[i], 1e-8);
  // A ridge shrinks; a matrix without full rank has a solution with one; zeros have zeros.
  double plain = 0, ridged = 0;
  for (const double value : solved) plain += value * value;
  for (const double value : solve_ridge(a, b, kN, kM, 0.5)) ridged += value * value;
  EXPECT_LT(ridged, plain);
  for (const double value : solve_ridge(moment(kN, 4, 3), b, kN, kM, 1e-2)) EXPECT_TRUE(std::isfinite(value));
  for (const double value : solve_ridge(std::vector<double>(kN * kN), b, kN, kM, 1e-2)) EXPECT_EQ(value, 0);
}

TEST(Dense, LeadingSubspaceHoldsTheLeadingVectors) {
  constexpr size_t kN = 30, kRank = 5;
  const std::vector<double> a = moment(kN, kRank, 4);
  const std::vector<double> rows = leading_subspace(a, kN, kRank, 5);
  const Eigen eigen = symmetric_eigen(a, kN);
  for (size_t e = 0; e < kRank; ++e) {
    double inside = 0;
    for (size_t r = 0; r < kRank; ++r) {
      const double share = row_product(eigen.vectors, e, rows, r, kN);
      inside += share * share;
    }
    EXPECT_NEAR(inside, 1, 1e-9);
  }
}

}  // namespace
}  // namespace quire
