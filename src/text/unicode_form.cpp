#include "text/unicode_form.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <vector>

#include "text/utf8.h"

namespace quire {
namespace {

bool is_ascii(char c) { return static_cast<uint8_t>(c) < 0x80; }

// utf8proc's own ordering of marks is quadratic in their number; only its tables are used.
void sort_marks(std::vector<utf8proc_int32_t>& points) {
  const auto mark_class = [](utf8proc_int32_t c) { return utf8proc_get_property(c)->combining_class; };
  for (size_t i = 0; i < points.size();) {
    size_t end = i;
    while (end < points.size() && mark_class(points[end]) != 0) ++end;
    std::stable_sort(points.begin() + static_cast<ptrdiff_t>(i), points.begin() + static_cast<ptrdiff_t>(end),
                     [&](utf8proc_int32_t a, utf8proc_int32_t b) { return mark_class(a) < mark_class(b); });
    i = end + 1;
  }
}

void append_code_point(utf8proc_int32_t c, std::string& out) {
  std::array<utf8proc_uint8_t, 4> bytes;
  const auto n = static_cast<size_t>(utf8proc_encode_char(c, bytes.data()));
  out.append(reinterpret_cast<const char*>(bytes.data()), n);
}

// Appends the normal form of `text`, which is UTF-8.
void append_form(std::string_view text, UnicodeForm form, std::vector<utf8proc_int32_t>& points,
                 std::string& out) {
  const bool compatible = form == UnicodeForm::kNfkc || form == UnicodeForm::kNfkd;
  const bool composed = form == UnicodeForm::kNfc || form == UnicodeForm::kNfkc;
  const auto options =
      static_cast<utf8proc_option_t>(UTF8PROC_DECOMPOSE | (compatible ? UTF8PROC_COMPAT : 0));
  points.clear();
  while (!text.empty()) {
    const Utf8Char c = decode_utf8(text);
    text.remove_prefix(c.size_bytes);
    std::array<utf8proc_int32_t, 32> parts;  // the longest is 18
    int boundary = UTF8PROC_BOUNDCLASS_START;
    const auto n = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c.code_point), parts.data(),
                                           parts.size(), options, &boundary);
    if (n < 0 || n > static_cast<utf8proc_ssize_t>(parts.size())) {
      points.push_back(static_cast<utf8proc_int32_t>(c.code_point));
    } else {
      points.insert(points.end(), parts.begin(), parts.begin() + n);
    }
  }
  sort_marks(points);
  if (composed) {
    const auto n =
        utf8proc_normalize_utf32(points.data(), static_cast<utf8proc_ssize_t>(points.size()),
                                 static_cast<utf8proc_option_t>(UTF8PROC_COMPOSE | UTF8PROC_STABLE));
    if (n >= 0) points.resize(static_cast<size_t>(n));
  }
  for (const utf8proc_int32_t c : points) append_code_point(c, out);
}

}  // namespace

std::string to_unicode_form(std::string_view text, UnicodeForm form) {
  std::string out;
  out.reserve(text.size());
  std::vector<utf8proc_int32_t> points;
  for (size_t at = 0; at < text.size();) {
    // ASCII is its own normal form; the last character of a run of it may take in the marks that follow.
    size_t end = at;
    while (end < text.size() && is_ascii(text[end])) ++end;
    const size_t last = end > at && end < text.size() ? end - 1 : end;
    out += text.substr(at, last - at);
    while (end < text.size() && !is_ascii(text[end])) {
      const Utf8Char c = decode_utf8(text.substr(end));
      if (c.state != Utf8Char::State::kValid) break;
      end += c.size_bytes;
    }
    if (end > last) append_form(text.substr(last, end - last), form, points, out);
    at = end;
    if (at == text.size() || is_ascii(text[at])) continue;
    const size_t n_invalid = decode_utf8(text.substr(at)).size_bytes;
    out += text.substr(at, n_invalid);
    at += n_invalid;
  }
  return out;
}

std::string to_lower_case(std::string_view text) {
  constexpr char32_t kDottedI = 0x130;  // the one character whose lower case is two
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const Utf8Char c = decode_utf8(text);
    if (c.state != Utf8Char::State::kValid) {
      out += text.substr(0, c.size_bytes);
    } else if (c.code_point == kDottedI) {
      out += "i\xCC\x87";
    } else {
      append_code_point(utf8proc_tolower(static_cast<utf8proc_int32_t>(c.code_point)), out);
    }
    text.remove_prefix(c.size_bytes);
  }
  return out;
}

std::optional<char32_t> first_character(std::string_view text) {
  if (text.empty()) return std::nullopt;
  const Utf8Char c = decode_utf8(text);
  return c.state == Utf8Char::State::kValid ? std::optional<char32_t>(c.code_point) : std::nullopt;
}

std::optional<char32_t> last_character(std::string_view text) {
  size_t begin = text.size();
  while (begin > 0 && text.size() - begin < 4) {
    --begin;
    if ((static_cast<uint8_t>(text[begin]) & 0xc0) == 0x80) continue;
    const Utf8Char c = decode_utf8(text.substr(begin));
    const bool whole = c.state == Utf8Char::State::kValid && begin + c.size_bytes == text.size();
    return whole ? std::optional<char32_t>(c.code_point) : std::nullopt;
  }
  return std::nullopt;
}

size_t leading_white_space(std::string_view text) {
  size_t at = 0;
  for (auto c = first_character(text); c && is_white_space(*c); c = first_character(text.substr(at))) {
    at += decode_utf8(text.substr(at)).size_bytes;
  }
  return at;
}

size_t without_trailing_white_space(std::string_view text) {
  for (auto c = last_character(text); c && is_white_space(*c); c = last_character(text)) {
    text.remove_suffix(*c < 0x80 ? 1 : *c < 0x800 ? 2 : 3);  // no white space is above U+FFFF
  }
  return text.size();
}

bool is_white_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0d) || c == 0x20 || c == 0x85 || c == 0xa0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f ||
         c == 0x3000;
}

bool is_word_character(char32_t code_point) {
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(code_point))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC: return true;
    default: return false;
  }
}

}  // namespace quire
