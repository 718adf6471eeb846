#include "text/jinja/unescape.h"

#include <charconv>
#include <cstdint>

#include "text/jinja/characters.h"
#include "text/jinja/lexer.h"

namespace quire::jinja {
namespace {

// A code point in `base` digits at the start of `text`, of at most `most` and at least `least` digits.
size_t read_code_point(std::string_view text, int base, size_t least, size_t most, int line,
                       std::string& out) {
  uint32_t code_point = 0;
  const std::string_view digits = text.substr(0, most);
  const auto got = std::from_chars(digits.data(), digits.data() + digits.size(), code_point, base);
  const auto n = static_cast<size_t>(got.ptr - digits.data());
  const bool is_surrogate = code_point >= 0xd800 && code_point < 0xe000;
  if (got.ec != std::errc() || n < least || code_point > 0x10ffff || is_surrogate) {
    fail_at(line, "the string escape before " + in_quotes(text.substr(0, 8)) + " names no character");
  }
  append_utf8(code_point, out);
  return n;
}

}  // namespace

std::string unescape(std::string_view literal, int line) {
  constexpr std::string_view kFrom = "abfnrtv\\'\"";
  constexpr std::string_view kTo = "\a\b\f\n\r\t\v\\'\"";
  std::string out;
  for (size_t i = 0; i < literal.size(); ++i) {
    if (literal[i] != '\\' || i + 1 == literal.size()) {
      out += literal[i];
      continue;
    }
    const char c = literal[++i];
    const std::string_view behind = literal.substr(i + 1);
    if (const size_t at = kFrom.find(c); at != std::string_view::npos) {
      out += kTo[at];
    } else if (c == 'x') {
      i += read_code_point(behind, 16, 2, 2, line, out);
    } else if (c == 'u') {
      i += read_code_point(behind, 16, 4, 4, line, out);
    } else if (c == 'U') {
      i += read_code_point(behind, 16, 8, 8, line, out);
    } else if (c >= '0' && c <= '7') {
      i += read_code_point(literal.substr(i), 8, 1, 3, line, out) - 1;
    } else if (c != '\n') {  // which an escape takes away
      out += '\\';
      out += c;
    }
  }
  return out;
}

}  // namespace quire::jinja
