// Measures what calibrated recipes know of a model: the means of its keys and values, how far its keys range
// against its queries, and what they add to scores, channel by channel.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "cache/statistics.h"
#include "model/model.h"

namespace quire {

class Engine;

// The first tokens of a sequence are outliers, stay exact in every recipe by default, and are not measured.
constexpr size_t kUncalibratedTokens = 4;
// Tokens of a window, if the model's context has room for them.
constexpr size_t kCalibrationWindow = 4096;
// Fewer are no measure of a mean.
constexpr size_t kLeastCalibrationTokens = 256;

// The balance of one KV head's keys against the queries of its group, from their root mean squares
// [head_dim]: proportional to sqrt(keys / queries), with the geometric mean 1. Both are taken to be at least
// 1 % of their mean over the channels, so that a dead channel divides nothing by zero.
void balance_keys(std::span<const double> key_rms, std::span<const double> query_rms, float* balance);

// Adds up rows as a forward pass shows them, in double precision. Keys are counted from the first one seen,
// so that the variance of a channel with a large constant part keeps its digits.
class CalibrationMeter : public RowObserver {
 public:
  // Keys are measured as they are coded: freed of `key_biases` (nullptr: none).
  explicit CalibrationMeter(const Geometry& geometry, std::shared_ptr<const KeyBiases> key_biases = nullptr);

  void rows(size_t layer, size_t position, size_t n, const float* q, const float* k, const float* v,
            size_t ld) override;

  // Throws Error when no row was counted, or one was not finite.
  Calibration result() const;

 private:
  // Sums over the counted tokens, [n_kv_heads * head_dim], and [n_heads * head_dim] for the queries.
  struct LayerSums {
    size_t n = 0;
    std::vector<double> origin;  // the first key
    std::vector<double> key;     // of key - origin
    std::vector<double> key_squares;
    std::vector<double> value;
    std::vector<double> query_squares;
    std::vector<double> query_key;  // of |q k| over the heads of the group, like the keys
  };

  void add_products(const float* q, const float* k, LayerSums& sums) const;
  void free_of_bias(size_t layer, size_t position, float* key) const;
  void add_head(const LayerSums& sums, size_t kv_head, size_t n_kv_heads, Calibration& result) const;

  Geometry geometry_;
  std::shared_ptr<const KeyBiases> key_biases_;
  std::vector<LayerSums> layers_;
  std::vector<float> key_;  // the one at hand
};

using TokenWindows = std::vector<std::vector<int32_t>>;

// The texts as sequences of at most kCalibrationWindow tokens, each begun as the vocabulary wants it.
TokenWindows calibration_windows(const Engine& engine, std::span<const std::string_view> texts);
size_t count_tokens(const TokenWindows& windows);

// Runs the model over the windows. The result does not depend on the number of threads. `progress`, if given,
// is called with the share of the work done. Throws Error when there are too few tokens.
Calibration measure_calibration(Engine& engine, const TokenWindows& windows,
                                const std::function<void(double)>& progress = {});

}  // namespace quire
