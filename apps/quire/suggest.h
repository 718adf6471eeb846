// The nearest known word to one that is not known.
#pragma once

#include <string>
#include <vector>

namespace quire::cli {

// "; did you mean '--temp'?" if one of `known` is near `word`, else `otherwise`.
std::string did_you_mean(const std::string& word, const std::vector<std::string>& known,
                         const std::string& otherwise);

}  // namespace quire::cli
