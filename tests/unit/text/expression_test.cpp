// Regular expressions: what is found, what is translated, what is refused, and that hostile ones come to an
// end.
#include "text/expression.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace quire {
namespace {

using Found = std::vector<std::string>;

Found find(std::string_view pattern, std::string_view text) {
  std::vector<Expression::Match> matches;
  MatchBudget budget(text.size());
  Expression(pattern).find_all(text, budget, matches);
  Found found;
  for (const Expression::Match& match : matches)
    found.emplace_back(text.substr(match.begin, match.end - match.begin));
  return found;
}

std::string expression_error(std::string_view pattern, std::string_view text = "") {
  try {
    find(pattern, text);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(Expression, FindsWhatUnicodeSays) {
  EXPECT_EQ(find(R"(\p{L}+)", "ab\xC3\xA9 1\xE6\xBC\xA2"), (Found{"ab\xC3\xA9", "\xE6\xBC\xA2"}));
  EXPECT_EQ(find(R"((?i:'s))", "'S 's '\xC5\xBF"), (Found{"'S", "'s", "'\xC5\xBF"}));
  EXPECT_EQ(find(R"(x*)", "axxb"), Found{"xx"});
  EXPECT_EQ(find(R"((?=a))", "aa"), Found{});
  EXPECT_EQ(find(R"(^a)", "a\na"), (Found{"a", "a"}));
}

// White space and words as Oniguruma has them.
TEST(Expression, ClassesAreTranslated) {
  EXPECT_EQ(find(R"(\s)", "\xE1\xA0\x8E \xC2\x85"), (Found{" ", "\xC2\x85"}));  // not U+180E
  EXPECT_EQ(find(R"([^\S]+)", " \t"), Found{" \t"});
  EXPECT_EQ(find(R"(\w+)", "e\xCC\x81_1-"), Found{"e\xCC\x81_1"});
  EXPECT_EQ(find(R"(\h+)", "g1aF "), Found{"1aF"});
  EXPECT_EQ(find(R"(\u00e9)", "\xC3\xA9"), Found{"\xC3\xA9"});
  EXPECT_EQ(find(R"(a\b)", "a a\xCC\x81"), Found{"a"});
  EXPECT_EQ(find(R"([[:punct:]])", "+\xE2\x82\xAC"), (Found{"+", "\xE2\x82\xAC"}));
}

TEST(Expression, WhatIsNotUnderstoodIsRefusedByName) {
  EXPECT_EQ(expression_error("(?m:.)"),
            "the regular expression '(?m:.)' has the option '(?m', which is not supported");
  EXPECT_EQ(expression_error("[a&&b]"),
            "the regular expression '[a&&b]' has '&&' inside a class, which is not supported");
  EXPECT_EQ(expression_error("[a[b]]"),
            "the regular expression '[a[b]]' has a class inside a class, which is not supported");
  EXPECT_EQ(expression_error("a{1,2}+"), "the regular expression 'a{1,2}+' has '}+', which is not supported");
  EXPECT_EQ(expression_error("(a"),
            "the regular expression '(a' is not understood: missing closing parenthesis");
  for (const char* pattern :
       {"(*UTF)a", "a\\", "[a", "[]a]", "\\Ka", "[\\W]", "\\p", "[[:graph:]]", "[[:alpha", "\\u12", "\\G"}) {
    EXPECT_NE(expression_error(pattern), "no error") << pattern;
  }
  EXPECT_EQ(expression_error(std::string(70000, 'a')),
            "a regular expression of the tokenizer is longer than 64 KiB");
}

TEST(Expression, InvalidBytesAreBorders) {
  EXPECT_EQ(find("a+",
                 "aa\xFF"
                 "aa\xC3"),
            (Found{"aa", "aa"}));
  EXPECT_EQ(find("[^b]+",
                 "a\xFF\xFE"
                 "c"),
            (Found{"a", "c"}));
}

// Exponential and quadratic expressions end with a sentence; long words of honest ones do not.
TEST(Expression, HostileExpressionsComeToAnEnd) {
  // Behind the text there is what they look for, so that no shortcut sees at once that nothing matches.
  const auto letters = [](size_t n) { return std::string(n, 'a').append("cb"); };
  EXPECT_EQ(expression_error("(?:a*)*b", letters(5000)),
            "the regular expression '(?:a*)*b' needs too many steps on this text");
  EXPECT_NE(expression_error("(?:a|aa)+b", letters(200)), "no error");
  EXPECT_NE(expression_error("(?:(?:a+)+)+b", letters(3000)), "no error");
  const std::string word(1 << 18, 'a');
  EXPECT_EQ(find(R"([^\r\n\p{L}]?[\p{Lu}\p{M}]*[\p{Ll}\p{M}]+|\s+(?!\S)|\s+)", word), Found{word});
  EXPECT_EQ(find(R"((?:(?=a)[^b])+)", word), Found{word});
}

}  // namespace
}  // namespace quire
