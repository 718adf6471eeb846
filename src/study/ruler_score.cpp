#include "study/ruler_score.h"

#include <algorithm>

#include "base/error.h"

namespace quire {
namespace {

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return out;
}

size_t n_found(std::string_view prediction, const std::vector<std::string>& references) {
  QUIRE_CHECK(!references.empty());
  const std::string said = lower(prediction);
  return static_cast<size_t>(std::count_if(
      references.begin(), references.end(),
      [&](const std::string& reference) { return said.find(lower(reference)) != std::string::npos; }));
}

}  // namespace

double match_all(std::string_view prediction, const std::vector<std::string>& references) {
  return static_cast<double>(n_found(prediction, references)) / static_cast<double>(references.size());
}

double match_part(std::string_view prediction, const std::vector<std::string>& references) {
  return n_found(prediction, references) > 0 ? 1 : 0;
}

}  // namespace quire
