// From Oniguruma's Ruby syntax to PCRE2's. The two agree on what tokenizers use but for this:
//
//   \s \S     PCRE2 counts U+180E as white space, Unicode does not
//   \w \W     PCRE2 10.42: letters, numbers and "_"; Oniguruma: alphabetic, marks, decimal digits, connectors
//   \b \B     follow \w
//   [:punct:] and the like: PCRE2 leaves out most symbols
//   \h \H     PCRE2: horizontal white space; Oniguruma: a hexadecimal digit
//   \uXXXX    PCRE2 has \x{XXXX}
//   (?m       PCRE2: ^ and $ at lines, which Ruby's always are; Ruby: the dot takes newlines. Refused.
//   }+        PCRE2: possessive; Ruby: repeated. Refused.
//   [a[b]] && PCRE2 has no nested classes. Refused.
#include <algorithm>
#include <utility>

#include "base/error.h"
#include "text/expression.h"
#include "text/one_line.h"

namespace quire {
namespace {

constexpr std::string_view kSpaces =
    "\\t-\\r\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}";
constexpr std::string_view kWord = "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}";
constexpr std::string_view kHex = "0-9A-Fa-f";

constexpr std::pair<std::string_view, std::string_view> kNamedClasses[] = {{"alpha", "\\p{Alphabetic}"},
                                                                           {"digit", "\\p{Nd}"},
                                                                           {"lower", "\\p{Lowercase}"},
                                                                           {"upper", "\\p{Uppercase}"},
                                                                           {"punct", "\\p{P}\\p{S}"},
                                                                           {"space", kSpaces},
                                                                           {"word", kWord},
                                                                           {"xdigit", kHex}};

class Translator {
 public:
  explicit Translator(std::string_view pattern) : pattern_(pattern) {}

  std::string translate() {
    if (pattern_.starts_with("(*")) refuse("a verb '(*'");
    while (at_ < pattern_.size()) {
      const char c = pattern_[at_];
      if (c == '\\') {
        escape();
      } else if (c == '[') {
        character_class();
      } else {
        if (c == '(') check_group();
        if (c == '}' && next_is('+')) refuse("'}+'");
        take(1);
      }
    }
    return std::move(out_);
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    throw Error("the regular expression '" + one_line(pattern_) + "' has " + what +
                ", which is not supported");
  }

  bool next_is(char c) const { return at_ + 1 < pattern_.size() && pattern_[at_ + 1] == c; }

  void take(size_t n) {
    out_ += pattern_.substr(at_, n);
    at_ += n;
  }

  // "(?im-x:" may not turn on m.
  void check_group() const {
    if (pattern_.substr(at_, 2) != "(?") return;
    for (size_t i = at_ + 2; i < pattern_.size(); ++i) {
      const char c = pattern_[i];
      if (c == 'm') refuse("the option '(?m'");
      if (c != 'i' && c != 'x' && c != '-') return;
    }
  }

  // A set of characters by its members: as a class of its own, or as a part of the one around it.
  void members(std::string_view set, bool negated, bool inside) {
    if (!inside) out_ += negated ? "[^" : "[";
    out_ += set;
    if (!inside) out_ += ']';
  }

  void unicode_escape() {
    const std::string_view digits = pattern_.substr(at_ + 2, 4);
    if (digits.size() < 4 || digits.find_first_not_of("0123456789abcdefABCDEF") != std::string_view::npos) {
      refuse("'\\u' without four digits");
    }
    out_.append("\\x{").append(digits).append("}");
    at_ += 6;
  }

  void escape(bool inside = false) {
    if (at_ + 1 == pattern_.size()) refuse("a backslash at its end");
    const char c = pattern_[at_ + 1];
    const std::string_view set = c == 's' || c == 'S'   ? kSpaces
                                 : c == 'w' || c == 'W' ? kWord
                                 : c == 'h' || c == 'H' ? kHex
                                                        : std::string_view();
    if (!set.empty()) {
      const bool negated = c == 'S' || c == 'W' || c == 'H';
      if (negated && inside && c != 'S') refuse(std::string("'\\") + c + "' inside a class");
      if (negated && inside) return take(2);  // differs in U+180E only
      members(set, negated, inside);
      at_ += 2;
    } else if ((c == 'b' || c == 'B') && !inside) {
      word_boundary(c == 'b');
    } else if (c == 'u') {
      unicode_escape();
    } else if (c == 'K' || c == 'G' || c == 'C' || c == 'Q' || c == 'E' || c == 'N') {
      refuse(std::string("'\\") + c + "'");
    } else if (c == 'p' || c == 'P') {
      const size_t close = pattern_.find('}', at_);
      if (!pattern_.substr(at_ + 2).starts_with("{") || close == std::string_view::npos)
        refuse("'\\p' without braces");
      take(close + 1 - at_);
    } else {
      take(2);
    }
  }

  void named_class(std::string_view name) {
    const auto found = std::ranges::find(kNamedClasses, name, [](const auto& pair) { return pair.first; });
    if (found == std::end(kNamedClasses)) refuse("the class '[:" + std::string(name) + ":]'");
    out_ += found->second;
  }

  // Between a character of a word and none, or between two of one sort.
  void word_boundary(bool at_boundary) {
    const std::string in = std::string("[").append(kWord).append("])");
    const auto both = [&](const char* behind, const char* ahead) {
      out_.append("(?<").append(behind).append(in).append("(?").append(ahead).append(in);
    };
    out_ += "(?:";
    both("=", at_boundary ? "!" : "=");
    out_ += '|';
    both("!", at_boundary ? "=" : "!");
    out_ += ')';
    at_ += 2;
  }

  void character_class() {
    take(1);
    if (at_ < pattern_.size() && pattern_[at_] == '^') take(1);
    if (at_ < pattern_.size() && pattern_[at_] == ']') refuse("a class that begins with ']'");
    while (at_ < pattern_.size() && pattern_[at_] != ']') {
      if (pattern_[at_] == '\\') {
        escape(true);
      } else if (pattern_.substr(at_, 2) == "[:") {
        const size_t close = pattern_.find(":]", at_);
        if (close == std::string_view::npos) refuse("'[:' without ':]'");
        named_class(pattern_.substr(at_ + 2, close - at_ - 2));
        at_ = close + 2;
      } else if (pattern_[at_] == '[') {
        refuse("a class inside a class");
      } else if (pattern_.substr(at_, 2) == "&&") {
        refuse("'&&' inside a class");
      } else {
        take(1);
      }
    }
    if (at_ == pattern_.size()) refuse("a class without end");
    take(1);
  }

  std::string_view pattern_;
  size_t at_ = 0;
  std::string out_;
};

}  // namespace

std::string to_pcre2(std::string_view pattern) { return Translator(pattern).translate(); }

}  // namespace quire
