// Products of small matrices, in float by the kernels of the weights (kernels/panel.h, f32 panels) and in
// double by plain loops, so that what is built on them can be checked in double precision.
//
// Every sum runs over its terms in ascending order, whatever the sizes: results depend on no thread count.
#pragma once

#include <algorithm>
#include <cstddef>
#include <type_traits>
#include <vector>

#include "base/error.h"
#include "kernels/ops.h"

namespace quire {

// B [n][k] as panels of 16 rows, [panel][k][16]; rows behind the last are zeros.
template <typename T>
class PackedOperand {
 public:
  // Element (i, j) lies at b[i * row_stride + j * column_stride]; one of the strides is 1.
  void pack(const T* b, size_t n, size_t k, size_t row_stride, size_t column_stride) {
    n_ = n;
    k_ = k;
    panels_.resize((n + kPanelRows - 1) / kPanelRows * kPanelRows * k);
    for (size_t first = 0; first < n; first += kPanelRows) {
      T* panel = panels_.data() + first * k;
      const size_t count = std::min<size_t>(kPanelRows, n - first);
      const T* from = b + first * row_stride;
      if (count < kPanelRows) std::fill_n(panel, kPanelRows * k, T{});
      if (row_stride == 1) {
        for (size_t j = 0; j < k; ++j) std::copy_n(from + j * column_stride, count, panel + j * kPanelRows);
      } else {
        for (size_t i = 0; i < count; ++i) {
          for (size_t j = 0; j < k; ++j) panel[j * kPanelRows + i] = from[i * row_stride + j * column_stride];
        }
      }
    }
  }

  size_t n() const { return n_; }
  size_t k() const { return k_; }
  const T* panel(size_t first) const { return panels_.data() + first * k_; }

 private:
  size_t n_ = 0, k_ = 0;
  std::vector<T> panels_;
};

// c [m][ldc] = (or +=) a [m][lda] B^T, of B's rows the first n and of the sum's terms the first k; all of
// them where 0 is given.
template <typename T>
struct ProductShape {
  const T* a;
  size_t lda;
  size_t m;
  T* c;
  size_t ldc;
  bool accumulate = false;
  size_t n = 0;
  size_t k = 0;
};

template <typename T>
void multiply_small(const PackedOperand<T>& b, const ProductShape<T>& shape) {
  const size_t n = shape.n > 0 ? std::min(shape.n, b.n()) : b.n();
  const size_t k = shape.k > 0 ? shape.k : b.k();
  QUIRE_DCHECK(k <= b.k());
  for (size_t first = 0; first < n; first += kPanelRows) {
    const size_t count = std::min<size_t>(kPanelRows, n - first);
    if constexpr (std::is_same_v<T, float>) {
      ops().linear_precise[static_cast<size_t>(PanelKind::kF32)](
          {reinterpret_cast<const uint8_t*>(b.panel(first)), shape.a, shape.lda, static_cast<int>(k), 1,
           static_cast<int>(shape.m), static_cast<int>(count), shape.c + first, shape.ldc, shape.accumulate});
    } else {
      for (size_t i = 0; i < shape.m; ++i) {
        for (size_t r = 0; r < count; ++r) {
          T sum{};
          for (size_t j = 0; j < k; ++j)
            sum += shape.a[i * shape.lda + j] * b.panel(first)[j * kPanelRows + r];
          T& out = shape.c[i * shape.ldc + first + r];
          out = shape.accumulate ? out + sum : sum;
        }
      }
    }
  }
}

// a [rows][lda] -> [columns][rows].
template <typename T>
void transpose(const T* a, size_t rows, size_t columns, size_t lda, std::vector<T>& out) {
  out.resize(rows * columns);
  for (size_t i = 0; i < rows; ++i) {
    for (size_t j = 0; j < columns; ++j) out[j * rows + i] = a[i * lda + j];
  }
}

}  // namespace quire
