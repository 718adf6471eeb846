#include "policy/highest.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>

#include "kernels/ops.h"

namespace quire {

void best_log_probabilities(const float* scores, size_t n_tiles, size_t group, std::vector<float>& best) {
  const size_t n_values = group * kPageTokens;
  std::vector<float> tile(n_values);
  std::vector<float> m(group, kNoScore);
  std::vector<float> l(group, 0.0f);
  std::vector<float> correction(group);
  const std::vector<uint64_t> masks(group, ~uint64_t{0});
  for (size_t i = 0; i < n_tiles; ++i) {
    std::copy_n(scores + i * n_values, n_values, tile.begin());
    ops().softmax(tile.data(), masks.data(), static_cast<int>(group), m.data(), l.data(), correction.data());
  }
  best.assign(n_tiles * kPageTokens, kNoScore);
  for (size_t h = 0; h < group; ++h) {
    const float log_sum = m[h] + std::log(l[h]);
    for (size_t i = 0; i < n_tiles; ++i) {
      const float* own = scores + (i * group + h) * kPageTokens;
      float* to = best.data() + i * kPageTokens;
      // What is no number stays out.
      for (size_t t = 0; t < kPageTokens; ++t) to[t] = own[t] - log_sum > to[t] ? own[t] - log_sum : to[t];
    }
  }
}

void prefer_kept(const LayerView& view, size_t kv_head, std::vector<float>& values) {
  if (view.kept == nullptr) return;
  const uint32_t* positions = view.kept->positions.data() + kv_head * view.kept->n;
  for (size_t i = 0; i < view.kept->n; ++i) values[positions[i]] = kCertain;
}

Threshold threshold_of(std::span<const float> values, size_t n_wanted, std::vector<float>& room) {
  room.clear();
  std::copy_if(values.begin(), values.end(), std::back_inserter(room), [](float x) { return x > kNoScore; });
  if (n_wanted == 0) return {kCertain, 0};
  if (room.size() <= n_wanted) return {};
  const auto nth = room.begin() + static_cast<ptrdiff_t>(n_wanted - 1);
  std::nth_element(room.begin(), nth, room.end(), std::greater<>());
  const float value = *nth;
  const auto n_above = std::count_if(room.begin(), nth, [value](float x) { return x > value; });
  return {value, n_wanted - static_cast<size_t>(n_above)};
}

void mark_highest(std::span<const float> values, size_t n_wanted, size_t kv_head, std::vector<float>& room,
                  Selection& selection) {
  choose_highest(values, n_wanted, room, [&](size_t token) { selection.mark(kv_head, token); });
}

}  // namespace quire
