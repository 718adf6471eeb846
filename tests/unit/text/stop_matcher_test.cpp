// Case U32: nothing of a stop leaks, nothing is lost, and streamed text equals unstreamed text.
#include "text/stop_matcher.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "base/error.h"

namespace quire {
namespace {

using Strings = std::vector<std::string>;

// What the whole text is cut to: everything before the earliest start of any stop.
std::string cut(const std::string& text, const Strings& stops) {
  size_t end = text.size();
  for (const std::string& stop : stops) end = std::min(end, text.find(stop));
  return text.substr(0, end);
}

std::string stream(const Strings& pieces, const Strings& stops, bool* stopped = nullptr) {
  StopMatcher matcher(stops);
  std::string out;
  for (const std::string& piece : pieces) out += matcher.push(piece);
  out += matcher.flush();
  if (stopped != nullptr) *stopped = matcher.stopped();
  return out;
}

TEST(StopMatcher, BegunButNeverCompletedIsReturnedAtTheEnd) {
  bool stopped = true;
  EXPECT_EQ(stream({"the fi", "n", "\nZZ", "Z"}, {"fin\nZZZZ"}, &stopped), "the fin\nZZZ");
  EXPECT_FALSE(stopped);
}

TEST(StopMatcher, HoldsBackOnlyWhatMayBecomeAStop) {
  StopMatcher matcher({"azy do"});
  EXPECT_EQ(matcher.push("the l"), "the l");
  EXPECT_EQ(matcher.push("az"), "");
  EXPECT_EQ(matcher.push("y a"), "azy ");
  EXPECT_EQ(matcher.push("zy"), "");
  EXPECT_EQ(matcher.push(" dog"), "");
  EXPECT_TRUE(matcher.stopped());
  EXPECT_EQ(matcher.push("never shown"), "");
  EXPECT_EQ(matcher.flush(), "");
}

TEST(StopMatcher, SeveralStops) {
  bool stopped = false;
  EXPECT_EQ(stream({"Hi", " Bru", "no: x"}, {"\n", "Bruno:"}, &stopped), "Hi ");
  EXPECT_TRUE(stopped);
  EXPECT_EQ(stream({"Hi Bru", "\nno:"}, {"\n", "Bruno:"}), "Hi Bru");
}

TEST(StopMatcher, OneStopAPrefixOfAnother) {
  EXPECT_EQ(stream({"xx a", "b", "c"}, {"ab", "abc"}), "xx ");
  EXPECT_EQ(stream({"xx a", "b", "c"}, {"abc", "ab"}), "xx ");
}

TEST(StopMatcher, OneStopInsideAnother) {
  const Strings stops{"\n", "fin\nZZ"};
  StopMatcher matcher(stops);
  EXPECT_EQ(matcher.push("a fin\n"), "a ");
  EXPECT_FALSE(matcher.stopped()) << "the longer stop began earlier and is still open";
  EXPECT_EQ(matcher.push("Z"), "");
  EXPECT_EQ(matcher.push("x"), "fin");
  EXPECT_TRUE(matcher.stopped());

  EXPECT_EQ(stream({"a fin\n", "ZZ", "y"}, stops), "a ");
  bool stopped = false;
  EXPECT_EQ(stream({"a fin\n"}, stops, &stopped), "a fin");
  EXPECT_TRUE(stopped) << "the end of the stream decides for the shorter one";
}

TEST(StopMatcher, StopInsideAnEmoji) {
  const std::string family = "\xF0\x9F\x91\xA9\xE2\x80\x8D\xF0\x9F\x91\xA7";  // woman, joiner, girl
  EXPECT_EQ(stream({"x", family.substr(0, 5), family.substr(5)}, {"\xE2\x80\x8D"}), "x\xF0\x9F\x91\xA9");
  EXPECT_EQ(stream({family.substr(0, 3), family.substr(3)}, {"\xF0\x9F\x91\xA7"}), family.substr(0, 7));
}

TEST(StopMatcher, NoStopsLetEverythingPass) { EXPECT_EQ(stream({"a", "b"}, {}), "ab"); }

TEST(StopMatcher, EmptyAndEndlessStopsAreErrors) {
  EXPECT_THROW(StopMatcher({"a", ""}), Error);
  EXPECT_THROW(StopMatcher({std::string(9000, 'a')}), Error);
}

TEST(StopMatcher, StreamedEqualsUnstreamed) {
  std::mt19937 rng(11);
  const auto random_text = [&](size_t max_bytes) {
    std::string text;
    for (size_t n = 1 + rng() % max_bytes; n > 0; --n) text += static_cast<char>('a' + rng() % 2);
    return text;
  };
  for (int round = 0; round < 20000; ++round) {
    Strings stops;
    for (size_t n = 1 + rng() % 3; n > 0; --n) stops.push_back(random_text(6));
    const std::string text = random_text(30);
    Strings pieces;
    for (size_t at = 0; at < text.size(); at += pieces.back().size()) {
      pieces.push_back(text.substr(at, 1 + rng() % 5));
    }
    bool stopped = false;
    const std::string expected = cut(text, stops);
    ASSERT_EQ(stream(pieces, stops, &stopped), expected) << text;
    ASSERT_EQ(stopped, expected.size() < text.size());
  }
}

}  // namespace
}  // namespace quire
