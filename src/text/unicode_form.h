// Unicode's normal forms and lower case, of text that may hold invalid UTF-8.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace quire {

enum class UnicodeForm { kNfc, kNfd, kNfkc, kNfkd };

// The text in a normal form (Unicode Standard Annex 15, by the tables of utf8proc). Invalid bytes stay as
// they are. Takes O(n log n) for any text.
std::string to_unicode_form(std::string_view text, UnicodeForm form);

// Character by character, without regard to place or language.
std::string to_lower_case(std::string_view text);

// The character at an end of `text`; nothing if the text is empty or its bytes there are no character.
std::optional<char32_t> first_character(std::string_view text);
std::optional<char32_t> last_character(std::string_view text);

// Size of the white space at the start of `text`, and what is left of `text` without that at its end.
size_t leading_white_space(std::string_view text);
size_t without_trailing_white_space(std::string_view text);

// White_Space of Unicode.
bool is_white_space(char32_t code_point);

// A letter, a mark, a number or a connector such as "_": what a word is made of.
bool is_word_character(char32_t code_point);

}  // namespace quire
