// How RULER scores what a model said: by the references found in it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace quire {

// Share of the references that the prediction contains, small and capital letters (of ASCII) alike: RULER's
// `string_match_all`, the score of all of its tasks but question answering. At least one reference.
double match_all(std::string_view prediction, const std::vector<std::string>& references);
// 1 where it contains any of them: `string_match_part`, of question answering.
double match_part(std::string_view prediction, const std::vector<std::string>& references);

}  // namespace quire
