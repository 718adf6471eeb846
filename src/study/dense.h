// The little of dense linear algebra that fitting needs, in double precision, row by row.
#pragma once

#include <cstddef>
#include <vector>

namespace quire {

// Solves (a + ridge * mean(diagonal of a) * 1) x = b for a symmetric positive semi-definite a [n][n] and
// b [n][m] by Cholesky; x [n][m]. A matrix of zeros gives zeros.
std::vector<double> solve_ridge(std::vector<double> a, std::vector<double> b, size_t n, size_t m,
                                double ridge);

// Eigenvalues, descending, and eigenvectors of a symmetric matrix.
struct Eigen {
  std::vector<double> values;   // [n]
  std::vector<double> vectors;  // [n][n], row i belongs to values[i]
};
// By Jacobi's rotations: for n up to a few hundred.
Eigen symmetric_eigen(std::vector<double> a, size_t n);

// Orthonormal rows [k][n] that span what the k leading eigenvectors of a positive semi-definite a [n][n]
// span, nearly, by `n_rounds` of orthogonal iteration. Deterministic. k <= n.
std::vector<double> leading_subspace(const std::vector<double>& a, size_t n, size_t k, int n_rounds);

}  // namespace quire
