#include "study/shared_text.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace quire {

namespace {

constexpr uint64_t kBase = 0x9e3779b97f4a7c15u;  // odd, so that no power of it vanishes

uint64_t value_of(int32_t token) { return (static_cast<uint64_t>(token) + 1) * 0xbf58476d1ce4e5b9u; }

// Calls visit(place, hash) for every window of n tokens.
template <typename Visit>
void visit_windows(const Tokens& text, size_t n, const Visit& visit) {
  if (text.size() < n || n == 0) return;
  uint64_t power = 1;  // of what leaves
  for (size_t i = 1; i < n; ++i) power *= kBase;
  uint64_t hash = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (i >= n) hash -= value_of(text[i - n]) * power;
    hash = hash * kBase + value_of(text[i]);
    if (i + 1 >= n) visit(i + 1 - n, hash);
  }
}

}  // namespace

SharedText shared_text(const Tokens& text, std::span<const Tokens> others) {
  const size_t n = std::min(kSharedTokens, text.size());
  std::vector<std::pair<uint64_t, size_t>> windows;
  visit_windows(text, n, [&](size_t place, uint64_t hash) { windows.emplace_back(hash, place); });
  std::sort(windows.begin(), windows.end());
  SharedText result{windows.size(), 0, 0};
  std::vector<bool> is_shared(text.size(), false);
  for (size_t other = 0; other < others.size(); ++other) {
    visit_windows(others[other], n, [&](size_t place, uint64_t hash) {
      auto at = std::lower_bound(windows.begin(), windows.end(), std::pair<uint64_t, size_t>(hash, 0));
      for (; at != windows.end() && at->first == hash; ++at) {
        const auto own = text.begin() + static_cast<ptrdiff_t>(at->second);
        if (is_shared[at->second] || !std::equal(own, own + static_cast<ptrdiff_t>(n),
                                                 others[other].begin() + static_cast<ptrdiff_t>(place))) {
          continue;
        }
        is_shared[at->second] = true;
        if (result.n_shared++ == 0) result.text = other;
      }
    });
  }
  return result;
}

}  // namespace quire
