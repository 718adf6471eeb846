#include "suggest.h"

#include <algorithm>
#include <cstddef>

#include "base/edit_distance.h"

namespace quire::cli {

std::string did_you_mean(const std::string& word, const std::vector<std::string>& known,
                         const std::string& otherwise) {
  constexpr size_t kLongestWord = 64;  // longer ones are no typing error, and two letters say nothing
  if (word.size() < 3 || word.size() > kLongestWord || known.empty()) return otherwise;
  const auto closer = [&](const std::string& a, const std::string& b) {
    return edit_distance(word, a) < edit_distance(word, b);
  };
  const std::string& nearest = *std::min_element(known.begin(), known.end(), closer);
  // Two letters that changed places are two edits, also in a short word.
  const size_t most = std::max<size_t>(2, word.size() / 3);
  return edit_distance(word, nearest) <= most ? "; did you mean '" + nearest + "'?" : otherwise;
}

}  // namespace quire::cli
