// How far two words are apart, for "did you mean".
#pragma once

#include <cstddef>
#include <string_view>

namespace quire {

// Levenshtein's distance: the fewest letters inserted, deleted or replaced that turn a into b.
size_t edit_distance(std::string_view a, std::string_view b);

}  // namespace quire
