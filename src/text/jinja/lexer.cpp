#include "text/jinja/lexer.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>

#include "base/error.h"
#include "text/jinja/characters.h"
#include "text/jinja/unescape.h"

namespace quire::jinja {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_name_start(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || static_cast<uint8_t>(c) >= 0x80;
}
bool is_name(char c) { return is_name_start(c) || is_digit(c); }

std::string with_plain_newlines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      out += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      out += source[i];
    }
  }
  if (out.ends_with('\n')) out.pop_back();
  return out;
}

// White space at the start of `text`, in bytes.
size_t leading_space(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    const Character c = first_character(text.substr(at));
    if (!is_space(c.code_point)) break;
    at += c.size_bytes;
  }
  return at;
}

std::string_view without_trailing_space(std::string_view text) {
  while (!text.empty()) {
    const size_t at = last_character(text);
    if (!is_space(first_character(text.substr(at)).code_point)) break;
    text = text.substr(0, at);
  }
  return text;
}

class Lexer {
 public:
  explicit Lexer(TokenList& list) : list_(list), source_(list.source) {}

  void run() {
    while (at_ < source_.size()) {
      const size_t tag = find_tag();
      if (tag == std::string_view::npos) {
        add_data(source_.substr(at_));
        at_ = source_.size();
      } else {
        read_tag(tag);
      }
    }
    add(TokenType::kEnd, "end of template");
  }

 private:
  std::string_view rest() const { return source_.substr(at_); }
  bool starts(std::string_view text) const { return rest().starts_with(text); }

  void add(TokenType type, std::string_view text) { list_.tokens.push_back({type, line_, text}); }

  // Goes on by n bytes and counts lines.
  void advance(size_t n) {
    line_ += static_cast<int>(std::count(source_.begin() + static_cast<ptrdiff_t>(at_),
                                         source_.begin() + static_cast<ptrdiff_t>(at_ + n), '\n'));
    at_ += n;
  }

  void add_data(std::string_view text) {
    if (!text.empty()) add(TokenType::kData, text);
  }

  size_t find_tag() const {
    for (size_t at = source_.find('{', at_); at != std::string_view::npos; at = source_.find('{', at + 1)) {
      const char next = at + 1 < source_.size() ? source_[at + 1] : '\0';
      if (next == '{' || next == '%' || next == '#') return at;
    }
    return std::string_view::npos;
  }

  // The text before a tag, as far as the tag's sign and lstrip_blocks leave it.
  std::string_view text_before(size_t tag, char sign, bool may_lstrip) const {
    const std::string_view text = source_.substr(at_, tag - at_);
    if (sign == '-') return without_trailing_space(text);
    if (sign == '+' || !may_lstrip) return text;
    const size_t newline = text.rfind('\n');
    const bool line_starting = at_ == 0 || source_[at_ - 1] == '\n';
    if (newline == std::string_view::npos && !line_starting) return text;
    const size_t line_begin = newline == std::string_view::npos ? 0 : newline + 1;
    const bool blank = leading_space(text.substr(line_begin)) == text.size() - line_begin;
    return blank ? text.substr(0, line_begin) : text;
  }

  char sign_at(size_t at) const {
    const char c = at < source_.size() ? source_[at] : '\0';
    return c == '-' || c == '+' ? c : '\0';
  }

  void read_tag(size_t tag) {
    const char kind = source_[tag + 1];
    const char sign = sign_at(tag + 2);
    add_data(text_before(tag, sign, kind != '{'));
    advance(tag - at_);
    const size_t begin_bytes = sign == '\0' ? 2 : 3;
    if (kind == '#') {
      read_comment(begin_bytes);
    } else if (kind == '{') {
      add(TokenType::kVariableBegin, rest().substr(0, 2));
      advance(begin_bytes);
      read_expression(TokenType::kVariableEnd);
    } else if (const size_t raw_bytes = raw_begin(begin_bytes); raw_bytes > 0) {
      read_raw(raw_bytes);
    } else {
      add(TokenType::kBlockBegin, rest().substr(0, 2));
      advance(begin_bytes);
      read_expression(TokenType::kBlockEnd);
    }
  }

  // Bytes of a tag's end at the beginning of `text`, "%}" or "#}", with what is trimmed behind it; 0: none.
  static size_t end_bytes(std::string_view text, std::string_view end) {
    if (text.starts_with('-') && text.substr(1).starts_with(end)) {
      return 1 + end.size() + leading_space(text.substr(1 + end.size()));
    }
    if (text.starts_with('+') && text.substr(1).starts_with(end)) return 1 + end.size();
    if (!text.starts_with(end)) return 0;
    return end.size() + (text.substr(end.size()).starts_with('\n') ? 1 : 0);
  }

  static size_t variable_end_bytes(std::string_view text) {
    if (text.starts_with("-}}")) return 3 + leading_space(text.substr(3));
    return text.starts_with("}}") ? 2 : 0;
  }

  void read_comment(size_t begin_bytes) {
    const int line = line_;
    const size_t end = source_.find("#}", at_ + begin_bytes);
    if (end == std::string_view::npos) fail_at(line, "the comment that begins here has no end");
    const char before = source_[end - 1];
    const bool has_sign = end > at_ + begin_bytes && (before == '-' || before == '+');
    const size_t sign_at = has_sign ? end - 1 : end;
    advance(sign_at - at_);
    advance(end_bytes(rest(), "#}"));
  }

  // Bytes of "{% raw %}" here; 0: another tag.
  size_t raw_begin(size_t begin_bytes) const {
    std::string_view text = rest().substr(begin_bytes);
    text.remove_prefix(leading_space(text));
    if (!text.starts_with("raw")) return 0;
    text.remove_prefix(3);
    text.remove_prefix(leading_space(text));
    if (text.starts_with("-%}")) {
      text.remove_prefix(3);
      text.remove_prefix(leading_space(text));
    } else if (text.starts_with("%}")) {
      text.remove_prefix(2);
    } else {
      return 0;
    }
    return rest().size() - text.size();
  }

  void read_raw(size_t raw_bytes) {
    const int line = line_;
    advance(raw_bytes);
    for (size_t tag = source_.find("{%", at_); tag != std::string_view::npos;
         tag = source_.find("{%", tag + 1)) {
      const char sign = sign_at(tag + 2);
      std::string_view text = source_.substr(tag + (sign == '\0' ? 2 : 3));
      text.remove_prefix(leading_space(text));
      if (!text.starts_with("endraw")) continue;
      text.remove_prefix(6);
      text.remove_prefix(leading_space(text));
      const size_t end = end_bytes(text, "%}");
      if (end == 0) continue;
      add_data(text_before(tag, sign, true));
      advance(source_.size() - text.size() + end - at_);
      return;
    }
    fail_at(line, "the raw text that begins here has no end");
  }

  void read_expression(TokenType end_type) {
    const int line = line_;
    while (true) {
      advance(leading_space(rest()));
      if (at_ == source_.size()) fail_at(line, "the tag that begins here has no end");
      const bool is_block = end_type == TokenType::kBlockEnd;
      const size_t end =
          open_.empty() ? (is_block ? end_bytes(rest(), "%}") : variable_end_bytes(rest())) : 0;
      if (end > 0) {
        add(end_type, is_block ? "%}" : "}}");
        advance(end);
        return;
      }
      read_token();
    }
  }

  void read_token() {
    const char c = source_[at_];
    if (is_digit(c)) {
      read_number();
    } else if (is_name_start(c)) {
      size_t n = 1;
      while (at_ + n < source_.size() && is_name(source_[at_ + n])) ++n;
      add(TokenType::kName, rest().substr(0, n));
      at_ += n;
    } else if (c == '\'' || c == '"') {
      read_string(c);
    } else {
      read_operator();
    }
  }

  void read_string(char quote) {
    size_t end = at_ + 1;
    bool escaped = false;
    while (end < source_.size() && source_[end] != quote) {
      if (source_[end] == '\\') {
        escaped = true;
        ++end;
      }
      ++end;
    }
    if (end >= source_.size()) fail_at(line_, "the string that begins here has no end");
    std::string_view inside = source_.substr(at_ + 1, end - at_ - 1);
    if (escaped) inside = list_.strings.emplace_back(unescape(inside, line_));
    add(TokenType::kString, inside);
    advance(end + 1 - at_);
  }

  // Digits with single underscores between them.
  size_t digits(size_t at) const {
    size_t n = 0;
    while (at + n < source_.size() && (is_digit(source_[at + n]) || (n > 0 && source_[at + n] == '_'))) ++n;
    while (n > 0 && source_[at + n - 1] == '_') --n;
    return n;
  }

  char char_at(size_t at) const { return at < source_.size() ? source_[at] : '\0'; }

  void read_number() {
    if (source_[at_] == '0' && std::string_view("xXoObB").find(char_at(at_ + 1)) != std::string_view::npos &&
        at_ + 1 < source_.size()) {
      read_prefixed();
      return;
    }
    size_t n = digits(at_);
    bool is_float = false;
    if (char_at(at_ + n) == '.' && is_digit(char_at(at_ + n + 1)) && !(at_ > 0 && source_[at_ - 1] == '.')) {
      n += 1 + digits(at_ + n + 1);
      is_float = true;
    }
    if (char_at(at_ + n) == 'e' || char_at(at_ + n) == 'E') {
      const size_t sign = char_at(at_ + n + 1) == '+' || char_at(at_ + n + 1) == '-' ? 1 : 0;
      if (const size_t exponent = digits(at_ + n + 1 + sign); exponent > 0) {
        n += 1 + sign + exponent;
        is_float = true;
      }
    }
    add_number(n, is_float, 10);
  }

  void read_prefixed() {
    const char c = static_cast<char>(char_at(at_ + 1) | 0x20);
    size_t n = 2;
    while (std::isxdigit(static_cast<unsigned char>(char_at(at_ + n))) || char_at(at_ + n) == '_') ++n;
    add_number(n, false, c == 'x' ? 16 : c == 'o' ? 8 : 2);
  }

  void add_number(size_t n, bool is_float, int base) {
    std::string text(rest().substr(base == 10 ? 0 : 2, base == 10 ? n : n - 2));
    std::erase(text, '_');
    Token token{is_float ? TokenType::kFloat : TokenType::kInteger, line_, rest().substr(0, n)};
    const char* end = text.data() + text.size();
    if (is_float) {
      token.floating = std::strtod(text.c_str(), nullptr);
    } else if (const auto got = std::from_chars(text.data(), end, token.integer, base);
               got.ptr != end || got.ec != std::errc()) {
      fail_at(line_, "the number " + in_quotes(token.text) + " is not one of 64 bits");
    }
    list_.tokens.push_back(token);
    at_ += n;
  }

  void read_operator() {
    constexpr std::string_view kTwo[] = {"//", "**", "==", "!=", "<=", ">="};
    constexpr std::string_view kOne = "+-/*%~[](){}<>=.:|,;";
    for (const std::string_view two : kTwo) {
      if (!starts(two)) continue;
      add(TokenType::kOperator, rest().substr(0, 2));
      at_ += 2;
      return;
    }
    const char c = source_[at_];
    if (kOne.find(c) == std::string_view::npos)
      fail_at(line_, "the character " + in_quotes(rest().substr(0, 1)) + " means nothing here");
    balance(c);
    add(TokenType::kOperator, rest().substr(0, 1));
    ++at_;
  }

  // The end of a tag counts outside of brackets only.
  void balance(char c) {
    if (c == '(') open_ += ')';
    if (c == '[') open_ += ']';
    if (c == '{') open_ += '}';
    if (c != ')' && c != ']' && c != '}') return;
    if (open_.empty()) fail_at(line_, "the bracket " + in_quotes({&c, 1}) + " closes nothing");
    if (open_.back() != c) {
      fail_at(line_, "the bracket " + in_quotes({&c, 1}) + " stands where " + in_quotes({&open_.back(), 1}) +
                         " is due");
    }
    open_.pop_back();
  }

  TokenList& list_;
  std::string_view source_;
  size_t at_ = 0;
  int line_ = 1;
  std::string open_;  // the brackets that are due
};

}  // namespace

void read_tokens(std::string_view source, TokenList& list) {
  list.source = with_plain_newlines(source);
  Lexer(list).run();
}

void fail_at(int line, const std::string& what) {
  throw Error("the chat template, line " + std::to_string(line) + ": " + what);
}

std::string in_quotes(std::string_view text) {
  constexpr size_t kMost = 60;
  std::string out = "'";
  for (const char c : text.substr(0, kMost)) out += c >= 0x20 && c < 0x7f ? c : '?';
  if (text.size() > kMost) out += "...";
  return out + "'";
}

}  // namespace quire::jinja
