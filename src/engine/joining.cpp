#include "engine/joining.h"

#include <algorithm>

namespace quire {

Joint join(std::span<const int32_t> sequence, std::span<const int32_t> prompt, size_t n_fixed) {
  const size_t n_shorter = std::min(sequence.size(), prompt.size());
  const auto first = sequence.first(n_shorter);
  const auto differ = std::mismatch(first.begin(), first.end(), prompt.begin()).first;
  Joint joint;
  joint.n_common = static_cast<size_t>(differ - first.begin());
  const bool telling = joint.n_common > n_fixed && (joint.n_common - n_fixed) * 2 >= n_shorter - n_fixed;
  joint.same_start = joint.n_common == n_shorter || telling;
  return joint;
}

}  // namespace quire
