#include "suggest.h"

#include <algorithm>
#include <cstddef>

namespace quire::cli {
namespace {

// Levenshtein's distance, one row of the table at a time.
size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t substituted = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({substituted, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

}  // namespace

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
