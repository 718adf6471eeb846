#include "text/normalizer.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "text/unicode_form.h"

namespace quire {
namespace {

using Kind = NormalStep::Kind;

std::string normalized(std::vector<NormalStep> steps, std::string text, TextPlace place = TextPlace::kBegin) {
  Normalizer(steps).apply(place, text);
  return text;
}

TEST(Normalizer, StepsInOrder) {
  EXPECT_EQ(normalized({{Kind::kPrepend, "", "_"}, {Kind::kReplaceText, "a", "bb"}}, "aca"), "_bbcbb");
  EXPECT_EQ(normalized({{Kind::kReplaceExpression, "[ab]+", "-"}}, "abcab"), "-c-");
  EXPECT_EQ(normalized({{Kind::kStripLeft}}, " \xC2\xA0 a "), "a ");
  EXPECT_EQ(normalized({{Kind::kStripRight}}, " a\xE3\x80\x80\n"), " a");
  EXPECT_EQ(normalized({{Kind::kStripRight}}, " \n"), "");
  EXPECT_EQ(normalized({{Kind::kCollapseSpaces}}, "  a   b "), "a b");
  EXPECT_EQ(normalized({{Kind::kLowercase}}, "A\xC3\x89\xC4\xB0\xFFZ"), "a\xC3\xA9i\xCC\x87\xFFz");
}

TEST(Normalizer, PrefixesDependOnThePlace) {
  const NormalStep always{Kind::kPrepend, "", "_"}, once{Kind::kPrependOnce, "", "_"},
      first{Kind::kPrependFirst, "", "_"};
  EXPECT_EQ(normalized({always}, "_a"), "__a");
  EXPECT_EQ(normalized({once}, "_a"), "_a");
  EXPECT_EQ(normalized({once}, "a", TextPlace::kAfterLiteral), "_a");
  EXPECT_EQ(normalized({first}, "a"), "_a");
  EXPECT_EQ(normalized({first}, "a", TextPlace::kAfterLiteral), "a");
  for (const NormalStep& step : {always, once, first})
    EXPECT_EQ(normalized({step}, "a", TextPlace::kInside), "a");
  EXPECT_EQ(normalized({always}, ""), "");
}

// Forty doublings would be a tebibyte for every letter.
TEST(Normalizer, ATextGrowsWithinBounds) {
  for (const Kind kind : {Kind::kReplaceText, Kind::kReplaceExpression}) {
    const NormalStep doubles{kind, "a", "aa"};
    EXPECT_EQ(normalized(std::vector<NormalStep>(10, doubles), "a").size(), 1024u);
    EXPECT_THROW(normalized(std::vector<NormalStep>(40, doubles), "a"), Error);
  }
  const NormalStep most{Kind::kReplaceText, "a", std::string(64, 'b')};
  const NormalStep more{Kind::kReplaceText, "a", std::string(65, 'b')};
  const NormalStep prefix{Kind::kPrepend, "", std::string(1 << 17, 'b')};
  const std::string text(5000, 'a');
  EXPECT_EQ(normalized({most}, text).size(), 64 * text.size());
  EXPECT_THROW(normalized({more}, text), Error);
  EXPECT_THROW(normalized({prefix}, "a"), Error);
  const std::vector<NormalStep> steps(Normalizer::kMaxSteps + 1, NormalStep{Kind::kNfc});
  EXPECT_THROW(Normalizer{steps}, Error);
}

TEST(UnicodeForm, ComposesAcrossTheBorderOfAscii) {
  EXPECT_EQ(to_unicode_form("cafe\xCC\x81 x", UnicodeForm::kNfc), "caf\xC3\xA9 x");
  EXPECT_EQ(to_unicode_form("caf\xC3\xA9", UnicodeForm::kNfd), "cafe\xCC\x81");
  EXPECT_EQ(to_unicode_form("\xEF\xAC\x81", UnicodeForm::kNfkc), "fi");
  EXPECT_EQ(to_unicode_form("\xEA\xB0\x80\xE1\x86\xA8", UnicodeForm::kNfc), "\xEA\xB0\x81");  // Hangul
}

TEST(UnicodeForm, InvalidBytesStay) {
  EXPECT_EQ(to_unicode_form("e\xFF\xCC\x81\xC3", UnicodeForm::kNfc), "e\xFF\xCC\x81\xC3");
}

// Marks in the worst order: a quadratic sort would take minutes.
TEST(UnicodeForm, ManyMarksTakeLittleTime) {
  std::string text = "a";
  for (int i = 0; i < 200000; ++i) text += i % 2 ? "\xCC\xA3" : "\xCC\x81";  // classes 220 and 230
  EXPECT_EQ(to_unicode_form(text, UnicodeForm::kNfd).size(), text.size());
}

TEST(UnicodeForm, LastCharacterOfAText) {
  EXPECT_EQ(last_character("a\xC3\xA9"), U'\xE9');
  EXPECT_EQ(last_character("a\xA9"), std::nullopt);
  EXPECT_EQ(last_character("\xF0\x9F\x98\x80"), U'\x1F600');
  EXPECT_EQ(last_character(""), std::nullopt);
  EXPECT_EQ(first_character("\xFF"), std::nullopt);
}

}  // namespace
}  // namespace quire
