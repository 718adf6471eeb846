// Choosing by the highest of many numbers.
#pragma once

#include <cstddef>
#include <limits>
#include <span>
#include <vector>

#include "store/selection.h"
#include "store/store.h"

namespace quire {

// Of what is not there, and is never chosen.
constexpr float kNoScore = -std::numeric_limits<float>::infinity();
// Of what is chosen before all others.
constexpr float kCertain = std::numeric_limits<float>::infinity();

// scores [n_tiles][group][64], natural logarithms -> best [n_tiles * 64]: the highest logarithm of a
// probability, each head's scores taken as those of one softmax. Scores of different heads are on different
// scales; their probabilities are on one.
void best_log_probabilities(const float* scores, size_t n_tiles, size_t group, std::vector<float>& best);

// The same by the sum over the heads of their probabilities: values [n_tiles * 64] that are in the order of
// the sums, where these are too small for a number too. Heads that have no finite highest score say nothing.
void values_by_sum(const float* scores, size_t n_tiles, size_t group, std::vector<float>& values);

// Calls choose(i) for the n_wanted highest of the values (all of them, if there are fewer), of equal ones for
// the last; `room` is scratch.
template <typename Choose>
void choose_highest(std::span<const float> values, size_t n_wanted, std::vector<float>& room,
                    const Choose& choose);

// Rows kept exact are read in any case: they become the first of a budget's. values [token]
void prefer_kept(const LayerView& view, size_t kv_head, std::vector<float>& values);

// Marks the tokens with the highest values.
void mark_highest(std::span<const float> values, size_t n_wanted, size_t kv_head, std::vector<float>& room,
                  Selection& selection);

// What the n-th highest value is, and how many of those equal to it are among the n highest. `room` is
// scratch.
struct Threshold {
  float value = kNoScore;
  size_t n_equal = 0;
};
Threshold threshold_of(std::span<const float> values, size_t n_wanted, std::vector<float>& room);

template <typename Choose>
void choose_highest(std::span<const float> values, size_t n_wanted, std::vector<float>& room,
                    const Choose& choose) {
  const Threshold threshold = threshold_of(values, n_wanted, room);
  size_t n_equal = threshold.n_equal;
  for (size_t i = values.size(); i-- > 0;) {
    if (values[i] > threshold.value) {
      choose(i);
    } else if (values[i] == threshold.value && n_equal > 0) {
      --n_equal;
      choose(i);
    }
  }
}

}  // namespace quire
