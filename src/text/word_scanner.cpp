// The expressions, as the models' own tokenizer.json give them:
//
//   gpt-2      's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
//   smollm     every \p{N} is a word of its own; what lies between is split as gpt-2, each part by
//              itself, so that white space before a digit counts as white space at the end
//   llama-bpe  (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}
//              | ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
//   qwen2      as llama-bpe, but \p{N} instead of \p{N}{1,3}
//
// Classes come from utf8proc, thus its version of Unicode (2.8: Unicode 15.0). Letters and digits that
// were assigned later are symbols here and may be letters in a newer engine (Hugging Face's tokenizers
// 0.23: Unicode 16, 5,004 code points more).
//
// PCRE2 10.42 with JIT takes twice as long on prose (4 MB of English: 42 to 55 ms, these 21 to 26 ms), has
// match and stack limits, and brings another version of Unicode.
#include "text/word_scanner.h"

#include <utf8proc.h>

#include <array>

#include "text/utf8.h"

namespace quire {
namespace {

enum class Class : uint8_t { kEnd, kLetter, kNumber, kSymbol, kSpace, kNewline };

struct Char {
  Class cls;
  uint8_t size_bytes;
};

bool is_space(Class cls) { return cls == Class::kSpace || cls == Class::kNewline; }

constexpr std::array<Class, 128> make_ascii_classes() {
  std::array<Class, 128> classes{};
  for (size_t c = 0; c < 128; ++c) {
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    const bool number = c >= '0' && c <= '9';
    const bool newline = c == '\r' || c == '\n';
    const bool space = c == ' ' || (c >= '\t' && c <= '\r');
    classes[c] = letter    ? Class::kLetter
                 : number  ? Class::kNumber
                 : newline ? Class::kNewline
                 : space   ? Class::kSpace
                           : Class::kSymbol;
  }
  return classes;
}

constexpr std::array<Class, 128> kAsciiClasses = make_ascii_classes();

// Unicode's White_Space above ASCII: not quite the categories Z* (U+0085 is a control character).
bool is_wide_space(uint32_t c) {
  return c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 ||
         c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

Class class_of(uint32_t code_point) {
  if (is_wide_space(code_point)) return Class::kSpace;
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(code_point))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO: return Class::kLetter;
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO: return Class::kNumber;
    default: return Class::kSymbol;
  }
}

Char char_at(std::string_view text, size_t at) {
  if (at >= text.size()) return {Class::kEnd, 0};
  const auto lead = static_cast<uint8_t>(text[at]);
  if (lead < 0x80) return {kAsciiClasses[lead], 1};
  const Utf8Char c = decode_utf8(text.substr(at));
  if (c.state != Utf8Char::State::kValid) return {Class::kSymbol, c.size_bytes};
  return {class_of(c.code_point), c.size_bytes};
}

// End of the run of characters of class `cls` that starts at `at`.
size_t run_end(std::string_view text, size_t at, Class cls) {
  for (;;) {
    while (at < text.size() && static_cast<uint8_t>(text[at]) < 0x80 &&
           kAsciiClasses[static_cast<uint8_t>(text[at])] == cls) {
      ++at;
    }
    const Char c = char_at(text, at);
    if (c.cls != cls) return at;
    at += c.size_bytes;
  }
}

// Size of 's 't 're 've 'm 'll 'd at the start of `text`, or 0. Without regard to case, the long s
// (U+017F, C5 BF) is an s too, as it is for a regex engine.
size_t contraction_size(std::string_view text, bool any_case) {
  if (text.size() < 2 || text[0] != '\'') return 0;
  const auto lower = [&](size_t i) -> char {
    if (i >= text.size()) return 0;
    return any_case && text[i] >= 'A' && text[i] <= 'Z' ? static_cast<char>(text[i] | 0x20) : text[i];
  };
  const char first = lower(1);
  if (first == 's' || first == 't' || first == 'm' || first == 'd') return 2;
  const char second = lower(2);
  if (second == 'e' && (first == 'r' || first == 'v')) return 3;
  if (first == 'l' && second == 'l') return 3;
  if (any_case && text.substr(1, 2) == "\xC5\xBF") return 3;
  return 0;
}

struct Spaces {
  size_t end;          // of the run of white space at the start of the text
  size_t last_start;   // of its last character
  size_t newline_end;  // after its last \r or \n, 0 if it has none
  Class after;         // class of what follows
};

Spaces read_spaces(std::string_view text) {
  Spaces spaces{0, 0, 0, Class::kEnd};
  Char c = char_at(text, 0);
  for (; is_space(c.cls); c = char_at(text, spaces.end)) {
    spaces.last_start = spaces.end;
    spaces.end += c.size_bytes;
    if (c.cls == Class::kNewline) spaces.newline_end = spaces.end;
  }
  spaces.after = c.cls;
  return spaces;
}

// \s+(?!\S)|\s+ : the last white space before something else belongs to what follows.
size_t spaces_word(const Spaces& spaces) {
  return spaces.after == Class::kEnd || spaces.last_start == 0 ? spaces.end : spaces.last_start;
}

size_t next_gpt2(std::string_view text, bool single_digits) {
  if (const size_t size = contraction_size(text, false)) return size;
  const size_t prefix = text[0] == ' ' ? 1 : 0;
  const Char first = char_at(text, prefix);
  if (first.cls == Class::kNumber && single_digits) return prefix ? prefix : first.size_bytes;
  if (first.cls != Class::kEnd && !is_space(first.cls)) return run_end(text, prefix, first.cls);
  Spaces spaces = read_spaces(text);
  if (single_digits && spaces.after == Class::kNumber) spaces.after = Class::kEnd;
  return spaces_word(spaces);
}

size_t numbers_word(std::string_view text, size_t max_digits) {
  size_t end = 0;
  for (size_t i = 0; i < max_digits; ++i) {
    const Char c = char_at(text, end);
    if (c.cls != Class::kNumber) break;
    end += c.size_bytes;
  }
  return end;
}

size_t next_llama3(std::string_view text, size_t max_digits) {
  if (const size_t size = contraction_size(text, true)) return size;
  const Char first = char_at(text, 0);
  if (first.cls == Class::kLetter) return run_end(text, 0, Class::kLetter);
  if (first.cls == Class::kNumber) return numbers_word(text, max_digits);
  if (first.cls != Class::kNewline && char_at(text, first.size_bytes).cls == Class::kLetter) {
    return run_end(text, first.size_bytes, Class::kLetter);
  }
  const size_t prefix = text[0] == ' ' ? 1 : 0;
  if (char_at(text, prefix).cls == Class::kSymbol) {
    return run_end(text, run_end(text, prefix, Class::kSymbol), Class::kNewline);
  }
  const Spaces spaces = read_spaces(text);
  return spaces.newline_end > 0 ? spaces.newline_end : spaces_word(spaces);
}

}  // namespace

size_t WordScanner::next_word(std::string_view text) const {
  switch (kind_) {
    case Kind::kGpt2: return next_gpt2(text, false);
    case Kind::kSmolLm: return next_gpt2(text, true);
    case Kind::kLlama3: return next_llama3(text, 3);
    case Kind::kQwen2: return next_llama3(text, 1);
  }
  return text.size();
}

}  // namespace quire
