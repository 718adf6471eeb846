// One row of scores at a time: softmax over a range, in float by the kernels and in double by plain loops.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "kernels/ops.h"

namespace quire {

// exp(score - max) and what they sum to.
struct RowSum {
  double max = -std::numeric_limits<double>::infinity();
  double sum = 0;

  double log_sum() const { return max + std::log(sum); }
};

// Sums and maxima are taken in 16 lanes, which the compiler makes registers of, and the lanes in their order.
constexpr size_t kRowLanes = 16;

template <typename T>
T range_max(const T* x, size_t first, size_t end) {
  std::array<T, kRowLanes> best;
  best.fill(-std::numeric_limits<T>::infinity());
  size_t i = first;
  for (; i + kRowLanes <= end; i += kRowLanes) {
    for (size_t j = 0; j < kRowLanes; ++j) best[j] = x[i + j] > best[j] ? x[i + j] : best[j];
  }
  T top = *std::max_element(best.begin(), best.end());
  for (; i < end; ++i) top = std::max(top, x[i]);
  return top;
}

// sum of a b over [first, end).
template <typename T>
double range_dot(const T* a, const T* b, size_t first, size_t end) {
  std::array<T, kRowLanes> sums{};
  size_t i = first;
  for (; i + kRowLanes <= end; i += kRowLanes) {
    for (size_t j = 0; j < kRowLanes; ++j) sums[j] += a[i + j] * b[i + j];
  }
  double sum = 0;
  for (const T lane : sums) sum += static_cast<double>(lane);
  for (; i < end; ++i) sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  return sum;
}

inline uint64_t page_mask(size_t page, size_t first, size_t end) {
  const size_t begin = page * kPageTokens;
  const size_t from = std::max(first, begin) - begin;
  const size_t to = std::min(end, begin + kPageTokens);
  if (to <= begin + from) return 0;
  const size_t n = to - begin - from;
  return (n == kPageTokens ? ~uint64_t{0} : (uint64_t{1} << n) - 1) << from;
}

// x [n], n a multiple of 64: exp(x - max) within [first, end), 0 outside. first < end.
template <typename T>
RowSum range_softmax(T* x, size_t first, size_t end, size_t n) {
  RowSum row;
  if constexpr (std::is_same_v<T, float>) {
    float max = range_max(x, first, end);
    float sum = 0;
    row.max = static_cast<double>(max);
    for (size_t page = 0; page < n / kPageTokens; ++page) {
      const uint64_t mask = page_mask(page, first, end);
      float* lanes = x + page * kPageTokens;
      if (mask == 0) {
        std::fill_n(lanes, kPageTokens, 0.0f);
        continue;
      }
      float correction = 1;
      float page_sum = 0;
      ops().softmax(lanes, &mask, 1, &max, &page_sum, &correction);
      sum += page_sum;
    }
    row.sum = static_cast<double>(sum);
  } else {
    row.max = range_max(x, first, end);
    for (size_t i = 0; i < n; ++i) {
      x[i] = i >= first && i < end ? std::exp(x[i] - row.max) : 0;
      row.sum += x[i];
    }
  }
  return row;
}

}  // namespace quire
