#include "policy/butler_predictor.h"

#include <cmath>

#include "kernels/ops.h"

namespace quire {

namespace {

// out[i] = x [columns] . rows [i][columns], of n rows, at most 16.
void multiply_rows(const float* x, size_t columns, const float* rows, size_t n, float* out) {
  float tile[kPageTokens];
  ops().score_rows[0](x, columns, 1, static_cast<int>(columns), rows, static_cast<int>(n), tile);
  for (size_t i = 0; i < n; ++i) out[i] = tile[i];
}

}  // namespace

void ButlerPredictor::normalise(size_t producer, const float* input, float* out) const {
  const ButlerProducer& own = weights_->producers[producer];
  const size_t width = geometry().width;
  double sum = 0;
  for (size_t i = 0; i < width; ++i) sum += static_cast<double>(input[i]);
  const auto mean = static_cast<float>(sum / static_cast<double>(width));
  double squares = 0;
  for (size_t i = 0; i < width; ++i) {
    const double off = static_cast<double>(input[i] - mean);
    squares += off * off;
  }
  const auto variance = static_cast<float>(squares / static_cast<double>(width));
  const float scale = 1.0f / std::sqrt(variance + kButlerNormEpsilon);
  for (size_t i = 0; i < width; ++i) {
    out[i] = (input[i] - mean) * scale * own.norm_weight[i] + own.norm_bias[i];
  }
}

void ButlerPredictor::hidden(size_t producer, const float* x, size_t first, size_t last, float* out) const {
  const std::vector<float>& in = weights_->producers[producer].in;
  const size_t width = geometry().width;
  multiply_rows(x, width, in.data() + first * width, last - first, out + first);
  for (size_t i = first; i < last; ++i) out[i] /= 1.0f + std::exp(-out[i]);
}

void ButlerPredictor::queries(size_t producer, const float* hidden, size_t first, size_t last,
                              float* out) const {
  const std::vector<float>& rows = weights_->producers[producer].out;
  const size_t n = geometry().hidden;
  multiply_rows(hidden, n, rows.data() + first * n, last - first, out + first);
  const float scale = 1.0f / std::sqrt(static_cast<float>(geometry().dim));
  for (size_t i = first; i < last; ++i) out[i] *= scale;
}

}  // namespace quire
