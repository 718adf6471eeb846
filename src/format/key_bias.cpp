#include "format/key_bias.h"

#include <cmath>
#include <utility>

#include "base/error.h"
#include "format/code_format.h"

namespace quire {

namespace {

constexpr size_t kBase = 64;
constexpr size_t kRows = kPageRows;
constexpr size_t kSpareFloats = 16;  // one register

RopeTurns::Turn product(RopeTurns::Turn a, RopeTurns::Turn b) {
  return {a.cosine * b.cosine - a.sine * b.sine, a.sine * b.cosine + a.cosine * b.sine};
}

}  // namespace

RopeTurns::RopeTurns(std::vector<double> frequencies) : half_(frequencies.size()) {
  table_.reserve(kDigits * kBase * half_);
  double step = 1;
  for (size_t digit = 0; digit < kDigits; ++digit, step *= kBase) {
    for (size_t value = 0; value < kBase; ++value) {
      for (const double frequency : frequencies) {
        const double angle = static_cast<double>(value) * step * frequency;
        table_.push_back({std::cos(angle), std::sin(angle)});
      }
    }
  }
}

RopeTurns::Turn RopeTurns::at(size_t pair, uint64_t position) const noexcept {
  Turn turn{1, 0};
  for (const Turn* digit = table_.data() + pair; position != 0; position /= kBase, digit += kBase * half_) {
    const size_t value = position % kBase;
    if (value != 0) turn = product(digit[value * half_], turn);
  }
  return turn;
}

KeyBias::KeyBias(std::shared_ptr<const RopeTurns> turns, std::span<const float> bias)
    : turns_(std::move(turns)), head_dim_(bias.size()) {
  const size_t half = turns_->half();
  QUIRE_CHECK(2 * half <= head_dim_);
  for (size_t i = 0; i < half; ++i) {
    if (bias[i] == 0 && bias[i + half] == 0) continue;
    pairs_.push_back({i, static_cast<double>(bias[i]), static_cast<double>(bias[i + half])});
  }
  for (size_t i = 2 * half; i < head_dim_; ++i) {
    if (bias[i] != 0) still_.push_back({i, static_cast<double>(bias[i])});
  }
  page_.resize(n_channels() * kRows + kSpareFloats);
  float* row = page_.data();
  float* partner = row + pairs_.size() * kRows;
  for (const Pair& pair : pairs_) {
    for (size_t t = 0; t < kRows; ++t) {
      const RopeTurns::Turn turn = turns_->at(pair.channel, t);
      *row++ = static_cast<float>(pair.first * turn.cosine - pair.second * turn.sine);
      *partner++ = static_cast<float>(pair.first * turn.sine + pair.second * turn.cosine);
    }
  }
  for (const Still& still : still_) {
    for (size_t t = 0; t < kRows; ++t) *partner++ = static_cast<float>(still.value);
  }
}

namespace {

void subtract(float& x, double y) { x = static_cast<float>(static_cast<double>(x) - y); }

}  // namespace

void KeyBias::take_off_page(uint64_t first, float* keys) const noexcept {
  const size_t half = turns_->half();
  for (const Pair& pair : pairs_) {
    const RopeTurns::Turn start = turns_->at(pair.channel, first);
    float* row = keys + pair.channel * kRows;
    float* partner = row + half * kRows;
    for (size_t t = 0; t < kRows; ++t) {
      const RopeTurns::Turn turn = product(start, turns_->at(pair.channel, t));
      subtract(row[t], pair.first * turn.cosine - pair.second * turn.sine);
      subtract(partner[t], pair.first * turn.sine + pair.second * turn.cosine);
    }
  }
  for (const Still& still : still_) {
    for (size_t t = 0; t < kRows; ++t) subtract(keys[still.channel * kRows + t], still.value);
  }
}

void KeyBias::take_off(uint64_t position, float* key) const noexcept {
  const size_t half = turns_->half();
  for (const Pair& pair : pairs_) {
    const RopeTurns::Turn turn = turns_->at(pair.channel, position);
    subtract(key[pair.channel], pair.first * turn.cosine - pair.second * turn.sine);
    subtract(key[pair.channel + half], pair.first * turn.sine + pair.second * turn.cosine);
  }
  for (const Still& still : still_) subtract(key[still.channel], still.value);
}

void KeyBias::turn_back(uint64_t first, const float* q, size_t n_rows, float* out) const noexcept {
  const size_t half = turns_->half();
  const size_t n_pairs = pairs_.size();
  const size_t width = n_channels();
  for (size_t i = 0; i < n_pairs; ++i) {
    const size_t channel = pairs_[i].channel;
    const RopeTurns::Turn turn = turns_->at(channel, first);
    const auto cosine = static_cast<float>(turn.cosine);
    const auto sine = static_cast<float>(turn.sine);
    for (size_t row = 0; row < n_rows; ++row) {
      const float a = q[row * head_dim_ + channel];
      const float b = q[row * head_dim_ + channel + half];
      out[row * width + i] = a * cosine + b * sine;
      out[row * width + n_pairs + i] = b * cosine - a * sine;
    }
  }
  for (size_t i = 0; i < still_.size(); ++i) {
    for (size_t row = 0; row < n_rows; ++row) {
      out[row * width + 2 * n_pairs + i] = q[row * head_dim_ + still_[i].channel];
    }
  }
}

}  // namespace quire
