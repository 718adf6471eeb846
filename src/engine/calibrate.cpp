#include "engine/calibrate.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "base/error.h"
#include "engine/engine.h"
#include "engine/vocabulary_reader.h"

namespace quire {
namespace {

// Share of the mean over the channels below which a channel's range is not believed.
constexpr double kLeastRange = 0.01;

double mean_of(std::span<const double> values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

void add_squares(const float* row, std::vector<double>& sums) {
  for (size_t j = 0; j < sums.size(); ++j)
    sums[j] += static_cast<double>(row[j]) * static_cast<double>(row[j]);
}

bool all_finite(const std::vector<double>& values) {
  return std::all_of(values.begin(), values.end(), [](double value) { return std::isfinite(value); });
}

}  // namespace

void balance_keys(std::span<const double> key_rms, std::span<const double> query_rms, float* balance) {
  const double least_key = kLeastRange * mean_of(key_rms);
  const double least_query = kLeastRange * mean_of(query_rms);
  std::vector<double> logs(key_rms.size(), 0.0);
  // A head whose keys or queries are all zero has nothing to balance. Ranges that are no numbers go through,
  // to be noticed in the result.
  if (least_key != 0 && least_query != 0) {
    for (size_t j = 0; j < logs.size(); ++j) {
      logs[j] =
          0.5 * (std::log(std::max(key_rms[j], least_key)) - std::log(std::max(query_rms[j], least_query)));
    }
  }
  const double centre = mean_of(logs);
  for (size_t j = 0; j < logs.size(); ++j) balance[j] = static_cast<float>(std::exp(logs[j] - centre));
}

CalibrationMeter::CalibrationMeter(const Geometry& geometry, std::shared_ptr<const KeyBiases> key_biases)
    : geometry_(geometry), key_biases_(std::move(key_biases)) {
  for (const size_t n_kv_heads : geometry.n_kv_heads) {
    const std::vector<double> zeros(n_kv_heads * geometry.head_dim, 0.0);
    const std::vector<double> query_zeros(geometry.n_heads * geometry.head_dim, 0.0);
    layers_.push_back({0, zeros, zeros, zeros, zeros, query_zeros, zeros});
  }
}

// Of one token; the keys as they are, with any bias: that is what scores are made of.
void CalibrationMeter::add_products(const float* q, const float* k, LayerSums& sums) const {
  const size_t dim = geometry_.head_dim;
  const size_t group_values = geometry_.n_heads * dim * dim / std::max<size_t>(sums.query_key.size(), 1);
  for (size_t at = 0; at < sums.query_key.size(); ++at) {
    const float* own = q + at / dim * group_values + at % dim;
    double sum = 0;
    for (size_t i = 0; i < group_values; i += dim) sum += std::fabs(static_cast<double>(own[i]));
    sums.query_key[at] += sum * std::fabs(static_cast<double>(k[at]));
  }
}

void CalibrationMeter::free_of_bias(size_t layer, size_t position, float* key) const {
  if (key_biases_ == nullptr) return;
  size_t head = 0;
  for (size_t before = 0; before < layer; ++before) head += geometry_.n_kv_heads[before];
  for (size_t i = 0; i < geometry_.n_kv_heads[layer]; ++i, key += geometry_.head_dim) {
    const std::optional<KeyBias>& bias = key_biases_->heads[head + i];
    if (bias) bias->take_off(position, key);
  }
}

void CalibrationMeter::rows(size_t layer, size_t position, size_t n, const float* q, const float* k,
                            const float* v, size_t ld) {
  LayerSums& sums = layers_[layer];
  const size_t width = sums.key.size();
  for (size_t i = position < kUncalibratedTokens ? kUncalibratedTokens - position : 0; i < n; ++i) {
    key_.assign(k + i * ld, k + i * ld + width);
    free_of_bias(layer, position + i, key_.data());
    const float* key = key_.data();
    const float* value = v + i * ld;
    if (sums.n == 0) std::copy_n(key, width, sums.origin.begin());
    for (size_t j = 0; j < width; ++j) {
      const double offset = static_cast<double>(key[j]) - sums.origin[j];
      sums.key[j] += offset;
      sums.key_squares[j] += offset * offset;
      sums.value[j] += static_cast<double>(value[j]);
    }
    add_squares(q + i * ld, sums.query_squares);
    add_products(q + i * ld, k + i * ld, sums);
    ++sums.n;
  }
}

void CalibrationMeter::add_head(const LayerSums& sums, size_t kv_head, size_t n_kv_heads,
                                Calibration& result) const {
  const size_t dim = geometry_.head_dim;
  const size_t group = geometry_.n_heads / n_kv_heads;
  const auto n = static_cast<double>(sums.n);
  std::vector<double> key_rms(dim);
  std::vector<double> query_rms(dim);
  for (size_t j = 0; j < dim; ++j) {
    const size_t at = kv_head * dim + j;
    const double offset = sums.key[at] / n;
    key_rms[j] = std::sqrt(std::max(0.0, sums.key_squares[at] / n - offset * offset));
    double squares = 0;
    for (size_t h = kv_head * group; h < (kv_head + 1) * group; ++h)
      squares += sums.query_squares[h * dim + j];
    query_rms[j] = std::sqrt(squares / (n * static_cast<double>(group)));
    result.key_mean.push_back(static_cast<float>(sums.origin[at] + offset));
    result.value_mean.push_back(static_cast<float>(sums.value[at] / n));
    result.query_key.push_back(static_cast<float>(sums.query_key[at] / (n * static_cast<double>(group))));
  }
  result.key_balance.resize(result.key_mean.size());
  balance_keys(key_rms, query_rms, result.key_balance.data() + result.key_balance.size() - dim);
}

Calibration CalibrationMeter::result() const {
  Calibration result;
  result.geometry = geometry_;
  for (size_t layer = 0; layer < layers_.size(); ++layer) {
    const LayerSums& sums = layers_[layer];
    const size_t n_kv_heads = geometry_.n_kv_heads[layer];
    if (n_kv_heads == 0) continue;
    if (sums.n == 0) throw Error("no token was there to calibrate the model on");
    if (!all_finite(sums.key_squares) || !all_finite(sums.value) || !all_finite(sums.query_squares)) {
      throw Error("the model cannot be calibrated: queries, keys or values of layer " +
                  std::to_string(layer) + " are not finite numbers");
    }
    for (size_t head = 0; head < n_kv_heads; ++head) add_head(sums, head, n_kv_heads, result);
  }
  return result;
}

TokenWindows calibration_windows(const Engine& engine, std::span<const std::string_view> texts) {
  const Tokenizer& tokenizer = engine.tokenizer();
  const size_t window = std::min(kCalibrationWindow, engine.config().context_tokens);
  const std::vector<int32_t> begin = encode_prompt(tokenizer, "", ControlTokens::kAsText);
  if (window <= begin.size() + kUncalibratedTokens)
    throw Error("the model's context is too short to calibrate it");
  TokenWindows windows;
  for (const std::string_view text : texts) {
    const std::vector<int32_t> tokens = tokenizer.encode(text, ControlTokens::kAsText);
    for (auto at = tokens.begin(); at != tokens.end();) {
      const auto n = std::min(tokens.end() - at, static_cast<ptrdiff_t>(window - begin.size()));
      windows.push_back(begin);
      windows.back().insert(windows.back().end(), at, at + n);
      at += n;
    }
  }
  return windows;
}

size_t count_tokens(const TokenWindows& windows) {
  size_t n = 0;
  for (const std::vector<int32_t>& window : windows) n += window.size();
  return n;
}

Calibration measure_calibration(Engine& engine, const TokenWindows& windows,
                                const std::function<void(double)>& progress) {
  const size_t n_tokens = count_tokens(windows);
  if (n_tokens < kLeastCalibrationTokens) {
    throw Error("a calibration needs at least " + std::to_string(kLeastCalibrationTokens) +
                " tokens of text, and there are " + std::to_string(n_tokens));
  }
  // A step attends to its own rows in exact form, so what codes the rows behind it does not show; it only
  // keeps the memory of the whole text down to one layer's.
  const Geometry geometry = engine.config().geometry();
  const bool may_code = geometry.first_full_layer() < geometry.n_layers;
  const Recipe recipe = Recipe::parse(may_code ? "turbo2(frame=plain)" : "full");
  CalibrationMeter meter(geometry, engine.model().key_biases());
  PagePool pool;
  Workspace workspace;
  size_t n_done = 0;
  for (const std::vector<int32_t>& window : windows) {
    Cache cache(recipe, geometry, pool);
    const auto show = [&](double share) {
      progress((static_cast<double>(n_done) + share * static_cast<double>(window.size())) /
               static_cast<double>(n_tokens));
    };
    engine.forward(window, cache, workspace, progress ? show : std::function<void(double)>(), &meter);
    n_done += window.size();
  }
  return meter.result();
}

}  // namespace quire
