#include "attention/partial_state.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/ops.h"

namespace quire {

PartialState::PartialState(size_t n, size_t dim) : n_rows(n), head_dim(dim), m(n), l(n), o(n * dim) {
  clear();
}

void PartialState::clear() {
  std::fill(m.begin(), m.end(), -std::numeric_limits<float>::infinity());
  std::fill(l.begin(), l.end(), 0.0f);
  std::fill(o.begin(), o.end(), 0.0f);
}

void PartialState::clear(size_t n, size_t dim) {
  if (n_rows != n || head_dim != dim) {
    *this = PartialState(n, dim);
  } else {
    clear();
  }
}

void PartialState::merge(const PartialState& other) {
  ops().merge(m.data(), l.data(), o.data(), other.m.data(), other.l.data(), other.o.data(),
              static_cast<int>(n_rows), static_cast<int>(head_dim));
}

void PartialState::write_output(float* out, size_t ld) const {
  for (size_t i = 0; i < n_rows; ++i) {
    const float inverse = l[i] > 0.0f ? 1.0f / l[i] : 0.0f;
    for (size_t d = 0; d < head_dim; ++d) out[i * ld + d] = o[i * head_dim + d] * inverse;
  }
}

double PartialState::log_sum(size_t row) const {
  return l[row] > 0.0f ? m[row] + std::log(static_cast<double>(l[row]))
                       : -std::numeric_limits<double>::infinity();
}

double add_logs(double a, double b) {
  const double top = std::max(a, b);
  return std::isinf(top) ? top : top + std::log1p(std::exp(std::min(a, b) - top));
}

}  // namespace quire
