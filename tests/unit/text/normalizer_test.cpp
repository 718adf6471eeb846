#include "text/normalizer.h"

#include <gtest/gtest.h>

#include "text/unicode_form.h"

namespace quire {
namespace {

using Kind = NormalStep::Kind;

std::string apply(std::vector<NormalStep> steps, std::string text, TextPlace place = TextPlace::kBegin) {
  Normalizer(steps).apply(place, text);
  return text;
}

TEST(Normalizer, StepsInOrder) {
  EXPECT_EQ(apply({{Kind::kPrepend, "", "_"}, {Kind::kReplaceText, "a", "bb"}}, "aca"), "_bbcbb");
  EXPECT_EQ(apply({{Kind::kReplaceExpression, "[ab]+", "-"}}, "abcab"), "-c-");
  EXPECT_EQ(apply({{Kind::kStripLeft}}, " \xC2\xA0 a "), "a ");
  EXPECT_EQ(apply({{Kind::kStripRight}}, " a\xE3\x80\x80\n"), " a");
  EXPECT_EQ(apply({{Kind::kStripRight}}, " \n"), "");
  EXPECT_EQ(apply({{Kind::kCollapseSpaces}}, "  a   b "), "a b");
  EXPECT_EQ(apply({{Kind::kLowercase}}, "A\xC3\x89\xC4\xB0\xFFZ"), "a\xC3\xA9i\xCC\x87\xFFz");
}

TEST(Normalizer, PrefixesDependOnThePlace) {
  const NormalStep always{Kind::kPrepend, "", "_"}, once{Kind::kPrependOnce, "", "_"},
      first{Kind::kPrependFirst, "", "_"};
  EXPECT_EQ(apply({always}, "_a"), "__a");
  EXPECT_EQ(apply({once}, "_a"), "_a");
  EXPECT_EQ(apply({once}, "a", TextPlace::kAfterLiteral), "_a");
  EXPECT_EQ(apply({first}, "a"), "_a");
  EXPECT_EQ(apply({first}, "a", TextPlace::kAfterLiteral), "a");
  for (const NormalStep& step : {always, once, first}) EXPECT_EQ(apply({step}, "a", TextPlace::kInside), "a");
  EXPECT_EQ(apply({always}, ""), "");
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
