// GPT-2's byte alphabet: vocabularies and merges are written with one printable character for each byte.
// Bytes that are printable in Latin-1 stand for themselves, the other 68 are U+0100 onwards in order, so
// that the space is U+0120 and the newline U+010A.
#pragma once

#include <string>
#include <string_view>

namespace quire {

// Appends the bytes that `text` spells. False, and nothing appended, if some character is outside the
// alphabet: such a token stands for its text as it is.
bool append_alphabet_bytes(std::string_view text, std::string& bytes);

}  // namespace quire
