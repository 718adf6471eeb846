// A text in sentences, the grain at which something can be hidden in it.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace quire {

// A piece without an end of a sentence is cut at a blank behind so many bytes, so that any text has pieces.
constexpr size_t kLongestSentenceBytes = 1000;

// The sentences of a text, in order, with every run of white space as one blank. A sentence ends with . ! or
// ?, quotes and brackets that close included, before white space; not behind a short title ("Mr.", "Mrs.")
// and not before a small letter. Joined by blanks they are the text. Empty for a text of white space.
std::vector<std::string> split_sentences(std::string_view text);

}  // namespace quire
