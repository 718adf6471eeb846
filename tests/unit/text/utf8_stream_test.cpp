#include "text/utf8_stream.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <random>

namespace quire {
namespace {

constexpr const char* kBad = "\xEF\xBF\xBD";

std::string whole(std::string_view bytes) {
  Utf8Stream stream;
  std::string out = stream.push(bytes);
  return out + stream.flush();
}

TEST(Utf8Stream, HoldsBackAnIncompleteCharacter) {
  Utf8Stream stream;
  EXPECT_EQ(stream.push("a\xF0\x9F"), "a");
  EXPECT_EQ(stream.push("\x98"), "");
  EXPECT_EQ(stream.push("\x80 b"), "\xF0\x9F\x98\x80 b");
  EXPECT_EQ(stream.flush(), "");
}

TEST(Utf8Stream, InvalidBytesAreReplacedAtOnce) {
  Utf8Stream stream;
  EXPECT_EQ(stream.push("\xFF"), kBad);
  EXPECT_EQ(stream.push("\xE2\x82"), "");
  EXPECT_EQ(stream.push("x"), std::string(kBad) + "x");
  EXPECT_EQ(stream.push("\xED"), "");
  EXPECT_EQ(stream.push("\xA0"), std::string(kBad) + kBad);  // a surrogate: known at the second byte
}

TEST(Utf8Stream, FlushReplacesWhatIsHeld) {
  Utf8Stream stream;
  EXPECT_EQ(stream.push("\xF0\x9F\x98"), "");
  EXPECT_EQ(stream.flush(), kBad);
  EXPECT_EQ(stream.flush(), "");
  EXPECT_EQ(stream.push("ok"), "ok");
}

// Values of Python's bytes.decode("utf-8", "replace").
TEST(Utf8Stream, OneReplacementForEachMaximalPart) {
  const std::string bad = kBad;
  EXPECT_EQ(whole("\xC0\xAF"), bad + bad);
  EXPECT_EQ(whole("\xE0\x80\xAF"), bad + bad + bad);
  EXPECT_EQ(whole("\xF0\x9F\x98"), bad);
  EXPECT_EQ(whole("\xF0\x80\x80\x80"), bad + bad + bad + bad);
  EXPECT_EQ(whole("\xF4\x90\x80\x80"), bad + bad + bad + bad);
  EXPECT_EQ(whole("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41"), bad + bad + bad + bad + "A");
  EXPECT_EQ(whole(std::string_view("\0\x7F\xC2\x80", 4)), std::string("\0\x7F\xC2\x80", 4));
}

TEST(Utf8Stream, AnyCutGivesTheSameText) {
  std::mt19937 rng(3);
  const std::string_view pool[] = {"a",    "\xC3\xA9", "\xE2\x82\xAC", "\xF0\x9F\x98\x80",
                                   "\xE2", "\x82",     "\xFF",         "\xF0\x9F"};
  for (int round = 0; round < 500; ++round) {
    std::string bytes;
    for (int i = 0; i < 12; ++i) bytes += pool[rng() % std::size(pool)];
    Utf8Stream stream;
    std::string out;
    for (size_t at = 0; at < bytes.size();) {
      const size_t n = std::min<size_t>(1 + rng() % 4, bytes.size() - at);
      out += stream.push(std::string_view(bytes).substr(at, n));
      at += n;
    }
    ASSERT_EQ(out + stream.flush(), whole(bytes));
  }
}

}  // namespace
}  // namespace quire
