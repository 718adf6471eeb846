// What kernels and attention should compute, written plainly in double precision.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace quire::test {

constexpr double kUnit = 0x1p-24;  // half an ulp of 1 in f32: the error of one rounding

// A sum of products, and the size its rounding error is relative to.
struct Sum {
  double value = 0;
  double magnitude = 0;
};

// weights . x over n columns; `largest` bounds the weights' parts in each `block` columns (random_rows.h).
inline Sum dot(const float* weights, const double* largest, size_t block, const double* x, size_t n) {
  Sum sum;
  for (size_t i = 0; i < n; ++i) {
    sum.value += static_cast<double>(weights[i]) * x[i];
    sum.magnitude += largest[i / block] * std::fabs(x[i]);
  }
  return sum;
}

// One attended token of one KV head.
struct Attended {
  std::vector<double> output;
  double log_sum = -std::numeric_limits<double>::infinity();
};

// A score as a model with a soft cap takes it; 0: there is none.
inline double capped(double score, double softcap) {
  return softcap > 0 ? softcap * std::tanh(score / softcap) : score;
}

// Softmax attention of one query to the tokens for which visible(token) holds. key(token, dim) and
// value(token, dim) give the rows. No tokens: zeros and -inf.
template <typename Visible, typename Key, typename Value>
Attended attention(const float* q, size_t dim, size_t n_tokens, const Visible& visible, const Key& key,
                   const Value& value, double softcap = 0) {
  std::vector<size_t> tokens;
  std::vector<double> scores;
  double top = -std::numeric_limits<double>::infinity();
  for (size_t t = 0; t < n_tokens; ++t) {
    if (!visible(t)) continue;
    double score = 0;
    for (size_t d = 0; d < dim; ++d) score += static_cast<double>(q[d]) * key(t, d);
    score = capped(score, softcap);
    tokens.push_back(t);
    scores.push_back(score);
    top = std::max(top, score);
  }
  Attended result{std::vector<double>(dim, 0.0)};
  if (tokens.empty()) return result;
  double sum = 0;
  for (const double score : scores) sum += std::exp(score - top);
  for (size_t i = 0; i < tokens.size(); ++i) {
    const double weight = std::exp(scores[i] - top) / sum;
    for (size_t d = 0; d < dim; ++d) result.output[d] += weight * value(tokens[i], d);
  }
  result.log_sum = top + std::log(sum);
  return result;
}

}  // namespace quire::test
