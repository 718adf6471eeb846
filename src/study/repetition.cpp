#include "study/repetition.h"

#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "base/error.h"

namespace quire {
namespace {

// n tokens from i on, as bytes, which standard containers can hash and compare.
std::string_view bytes_of(std::span<const int32_t> tokens, size_t i, size_t n) {
  return {reinterpret_cast<const char*>(tokens.data() + i), n * sizeof(int32_t)};
}

// Of one run of n tokens, the places taken one after the other, each as early as it can be: no other choice
// has more of them.
struct Places {
  size_t n = 0;
  size_t end = 0;  // of the last
};

}  // namespace

size_t tokens_to_repeat(std::span<const int32_t> tokens, size_t n, size_t times) {
  QUIRE_CHECK(n > 0 && times > 0);
  std::unordered_map<std::string_view, Places> seen;
  for (size_t i = 0; i + n <= tokens.size(); ++i) {
    Places& places = seen[bytes_of(tokens, i, n)];
    if (places.n > 0 && places.end > i) continue;
    places.end = i + n;
    if (++places.n == times) return places.end;
  }
  return 0;
}

double distinct_share(std::span<const int32_t> tokens, size_t n) {
  QUIRE_CHECK(n > 0);
  if (tokens.size() < n) return 1;
  const size_t n_all = tokens.size() - n + 1;
  std::unordered_set<std::string_view> seen;
  for (size_t i = 0; i < n_all; ++i) seen.insert(bytes_of(tokens, i, n));
  return static_cast<double>(seen.size()) / static_cast<double>(n_all);
}

}  // namespace quire
