#include "policy/highest.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>

#include "base/half.h"
#include "kernels/ops.h"

namespace quire {

namespace {

// The running softmax of a group's heads over tiles of scores [group][64].
class GroupSoftmax {
 public:
  explicit GroupSoftmax(size_t group)
      : m(group, kNoScore), l(group, 0.0f), correction_(group), masks_(group, ~uint64_t{0}) {}

  // Adds a tile: scores -> weights, exp(score - m) by the m that there is then. [group][64] each.
  void add(const float* scores, float* weights) {
    std::copy_n(scores, m.size() * kPageTokens, weights);
    ops().softmax(weights, masks_.data(), static_cast<int>(m.size()), m.data(), l.data(), correction_.data());
  }

  std::vector<float> m;  // the largest score of each head
  std::vector<float> l;  // sums of exp(score - m)

 private:
  std::vector<float> correction_;
  std::vector<uint64_t> masks_;
};

}  // namespace

void best_log_probabilities(const float* scores, size_t n_tiles, size_t group, std::vector<float>& best) {
  GroupSoftmax softmax(group);
  std::vector<float> weights(group * kPageTokens);
  for (size_t i = 0; i < n_tiles; ++i) softmax.add(scores + i * group * kPageTokens, weights.data());
  best.assign(n_tiles * kPageTokens, kNoScore);
  for (size_t h = 0; h < group; ++h) {
    const float log_sum = softmax.m[h] + std::log(softmax.l[h]);
    for (size_t i = 0; i < n_tiles; ++i) {
      const float* own = scores + (i * group + h) * kPageTokens;
      float* to = best.data() + i * kPageTokens;
      // What is no number stays out.
      for (size_t t = 0; t < kPageTokens; ++t) to[t] = own[t] - log_sum > to[t] ? own[t] - log_sum : to[t];
    }
  }
}

namespace {

// scores [n_tiles][group][64] -> sums [n_tiles * 64]. Weights are made once, by the largest score up to their
// tile, and then brought to the largest of all.
void sum_probabilities(const float* scores, size_t n_tiles, size_t group, std::vector<float>& sums) {
  GroupSoftmax softmax(group);
  std::vector<float> weights(n_tiles * group * kPageTokens);
  std::vector<float> largest(n_tiles * group);
  for (size_t i = 0; i < n_tiles; ++i) {
    softmax.add(scores + i * group * kPageTokens, weights.data() + i * group * kPageTokens);
    std::copy_n(softmax.m.data(), group, largest.data() + i * group);
  }
  sums.assign(n_tiles * kPageTokens, 0.0f);
  for (size_t i = 0; i < n_tiles * group; ++i) {
    const size_t h = i % group;
    // Before the first score there is no weight.
    if (!std::isfinite(largest[i]) || !std::isfinite(softmax.m[h]) || !(softmax.l[h] > 0)) continue;
    const float scale = std::exp(largest[i] - softmax.m[h]) / softmax.l[h];
    const float* own = weights.data() + i * kPageTokens;
    float* to = sums.data() + i / group * kPageTokens;
    for (size_t t = 0; t < kPageTokens; ++t) to[t] += own[t] * scale;
  }
}

}  // namespace

void values_by_sum(const float* scores, size_t n_tiles, size_t group, std::vector<float>& values) {
  sum_probabilities(scores, n_tiles, group, values);
  const auto is_there = [&](size_t i) {
    const float* own = scores + i / kPageTokens * group * kPageTokens + i % kPageTokens;
    bool there = false;
    for (size_t h = 0; h < group; ++h) there = there || own[h * kPageTokens] > kNoScore;
    return there;
  };
  bool underflows = false;
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i] > 0) continue;
    if (is_there(i)) {
      underflows = true;
    } else {
      values[i] = kNoScore;
    }
  }
  if (!underflows) return;
  std::vector<float> best;
  best_log_probabilities(scores, n_tiles, group, best);
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = std::max(best[i], values[i] > 0 ? std::log(values[i]) : kNoScore);
  }
}

void prefer_kept(const LayerView& view, size_t kv_head, std::vector<float>& values) {
  if (view.kept == nullptr) return;
  const uint32_t* positions = view.kept->positions.data() + kv_head * view.kept->n;
  for (size_t i = 0; i < view.kept->n; ++i) values[positions[i]] = kCertain;
}

namespace {

constexpr size_t kBins = 4096;

// Rises with x: sign, exponent and 3 bits of the fraction. Bin 0 is of what is not there or no number.
size_t bin_of(float x) {
  if (!(x > kNoScore)) return 0;
  const uint32_t bits = float_to_bits(x + 0.0f);  // the two zeros are one
  const uint32_t rising = bits >> 31 != 0 ? ~bits : bits | 0x80000000u;
  return rising >> 20;
}

}  // namespace

// A histogram tells which few values the n-th highest is among, so that only these are put in order.
Threshold threshold_of(std::span<const float> values, size_t n_wanted, std::vector<float>& room) {
  if (n_wanted == 0) return {kCertain, 0};
  uint32_t counts[kBins] = {0};
  for (const float x : values) ++counts[bin_of(x)];
  size_t bin = kBins - 1;
  for (; bin > 0 && counts[bin] < n_wanted; --bin) n_wanted -= counts[bin];
  if (bin == 0) return {};
  room.clear();
  for (const float x : values) {
    if (bin_of(x) == bin) room.push_back(x);
  }
  const auto nth = room.begin() + static_cast<ptrdiff_t>(n_wanted - 1);
  std::nth_element(room.begin(), nth, room.end(), std::greater<>());
  const float value = *nth;
  const auto n_before = std::count_if(room.begin(), nth, [value](float x) { return x > value; });
  return {value, n_wanted - static_cast<size_t>(n_before)};
}

void mark_highest(std::span<const float> values, size_t n_wanted, size_t kv_head, std::vector<float>& room,
                  Selection& selection) {
  choose_highest(values, n_wanted, room, [&](size_t token) { selection.mark(kv_head, token); });
}

}  // namespace quire
