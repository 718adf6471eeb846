// Characters of UTF-8 text as Python sees them: code points; a byte that belongs to none counts as one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "text/utf8.h"

namespace quire::jinja {

struct Character {
  size_t size_bytes;
  uint32_t code_point;  // U+FFFD of a byte that belongs to no character
};

// The one at the start of text, which is not empty.
inline Character first_character(std::string_view text) {
  const Utf8Char c = decode_utf8(text);
  if (c.state != Utf8Char::State::kValid) return {1, 0xfffd};
  return {c.size_bytes, c.code_point};
}

size_t count_characters(std::string_view text);
// Where the n-th character begins; the end of the text where there are no more.
size_t byte_of_character(std::string_view text, size_t n);
// Where the last character begins, of a text that is not empty.
size_t last_character(std::string_view text);

void append_utf8(uint32_t code_point, std::string& out);

// By the tables of Unicode; simple mappings of one character to one.
uint32_t to_upper(uint32_t code_point);
uint32_t to_lower(uint32_t code_point);
uint32_t to_title(uint32_t code_point);
bool is_cased(uint32_t code_point);
bool is_upper(uint32_t code_point);
bool is_lower(uint32_t code_point);
bool is_letter(uint32_t code_point);
bool is_decimal(uint32_t code_point);  // Nd
bool is_numeral(uint32_t code_point);  // Nd, Nl, No
bool is_space(uint32_t code_point);    // what Python's str.strip() takes away
bool is_printable(uint32_t code_point);

}  // namespace quire::jinja
