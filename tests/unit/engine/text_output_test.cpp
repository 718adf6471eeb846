#include "engine/text_output.h"

#include <gtest/gtest.h>

namespace quire {
namespace {

// What is shown of `bytes`, cut into pieces of n bytes; also checks that the pieces join to text().
std::string shown(const std::string& bytes, const std::vector<std::string>& stops, size_t n,
                  bool* stopped = nullptr) {
  std::string joined;
  TextOutput output(stops, [&](std::string_view piece) { joined += piece; });
  for (size_t i = 0; i < bytes.size() && !output.stopped(); i += n)
    output.push(std::string_view(bytes).substr(i, n));
  output.finish();
  EXPECT_EQ(joined, output.text());
  if (stopped != nullptr) *stopped = output.stopped();
  return joined;
}

TEST(TextOutput, DoesNotDependOnTheCuts) {
  const std::string bytes = "caf\xC3\xA9 \xF0\x9F\x8E\x88 fin\nZZ end";
  for (size_t n = 1; n <= bytes.size(); ++n) {
    EXPECT_EQ(shown(bytes, {}, n), bytes) << n;
    EXPECT_EQ(shown(bytes, {"fin\nZZZZ"}, n), bytes) << n;
    EXPECT_EQ(shown(bytes, {"\xF0\x9F\x8E\x88"}, n), "caf\xC3\xA9 ") << n;
    EXPECT_EQ(shown(bytes, {"\n", "fin\nZZZ"}, n), "caf\xC3\xA9 \xF0\x9F\x8E\x88 fin") << n;
  }
}

TEST(TextOutput, CutCharacterAtTheEndIsShownAsReplacement) {
  EXPECT_EQ(shown("a\xF0\x9F", {}, 1), "a\xEF\xBF\xBD");
}

TEST(TextOutput, StopDecidedOnlyAtTheEnd) {
  bool stopped = false;
  EXPECT_EQ(shown("text fin\n", {"\n", "fin\nZZ"}, 1, &stopped), "text fin");
  EXPECT_TRUE(stopped);
}

}  // namespace
}  // namespace quire
