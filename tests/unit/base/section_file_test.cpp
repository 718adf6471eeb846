#include "base/section_file.h"

#include <gtest/gtest.h>

#include <array>

#include "checksummed.h"

namespace quire {
namespace {

using Bytes = std::vector<std::byte>;

constexpr SectionFileKind kKind{"TESTFILE", 3, "test file"};

Bytes encode(const std::vector<Section>& sections, const SectionFileKind& kind = kKind) {
  Bytes bytes;
  write_sections(kind, sections, [&](std::span<const std::byte> more) {
    bytes.insert(bytes.end(), more.begin(), more.end());
  });
  return bytes;
}

Section text(const std::string& name, std::string_view content, bool mandatory = true) {
  return value_section<char>(name, content, mandatory);
}

Bytes sample() { return encode({text("one", "first"), text("empty", ""), text("extra", "12345678", false)}); }

template <typename T>
Bytes with(Bytes bytes, size_t at, T value) {
  return test::with_value(std::move(bytes), at, value, checksum_of);
}

std::string refusal(const Bytes& bytes) {
  try {
    const SectionFile file(bytes, "x", kKind);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(SectionFile, GoesThereAndBack) {
  const Bytes bytes = sample();
  EXPECT_EQ(bytes.size() % 8, 0u);
  const SectionFile file(bytes, "x", kKind);
  EXPECT_EQ(file.get_text("one"), "first");
  EXPECT_EQ(file.get_text("empty"), "");
  EXPECT_EQ(file.get_values<uint32_t>("extra").size(), 2u);
  EXPECT_FALSE(file.find("two"));
  EXPECT_THROW(file.get("two"), Error);
  EXPECT_THROW(file.get_values<uint32_t>("one"), Error);
}

// Written in pieces it is the same file.
TEST(SectionFile, PiecesDoNotMatter) {
  const Section piecewise{"one", true, 5, [](const ByteSink& sink) {
                            for (const std::string_view piece : {"fi", "", "rst"}) {
                              sink(std::as_bytes(std::span(piece)));
                            }
                          }};
  EXPECT_EQ(encode({piecewise}), encode({text("one", "first")}));
}

TEST(SectionFile, EveryFlippedBitAndEveryCutIsRefused) {
  const Bytes whole = sample();
  for (size_t n = 0; n < whole.size(); ++n) {
    EXPECT_NE(refusal({whole.begin(), whole.begin() + static_cast<ptrdiff_t>(n)}), "") << n;
    for (int bit = 0; bit < 8; ++bit) {
      Bytes flipped = whole;
      flipped[n] ^= std::byte{1} << bit;
      EXPECT_NE(refusal(flipped), "") << n << " bit " << bit;
    }
  }
  Bytes longer = whole;
  longer.push_back(std::byte{0});
  EXPECT_NE(refusal(longer), "");
}

TEST(SectionFile, SaysWhatIsWrong) {
  const Bytes whole = sample();
  const auto refused = [](const Bytes& bytes, const char* words) {
    EXPECT_NE(refusal(bytes).find(words), std::string::npos) << refusal(bytes);
    EXPECT_TRUE(refusal(bytes).starts_with("x: "));
  };
  refused({}, "empty");
  refused(Bytes(100), "no test file");
  refused(with(whole, 8, uint32_t{4}), "version 4");
  refused({whole.begin(), whole.end() - 9}, "cut short");
  refused(Bytes(whole.begin(), whole.begin() + 12), "cut short");
  Bytes flipped = whole;
  flipped[60] ^= std::byte{1};
  refused(flipped, "checksum");
  refused(encode({text("one", "a"), text("one", "b")}), "twice");
  refused(encode(std::vector<Section>(300, text("one", ""))), "twice");
  refused(with(whole, 24, 'A'), "section 1");      // no name
  refused(with(whole, 24 + 5, 'a'), "section 1");  // something behind the zeros of a name
  refused(with(whole, 24, '\0'), "section 1");     // an empty name
  for (const uint64_t length : {uint64_t{6 + 90}, uint64_t{1} << 40, UINT64_MAX, UINT64_MAX - 7}) {
    refused(with(whole, 24 + 24, length), "section 1");
  }
}

TEST(SectionFile, HasNoEndlessListOfSections) {
  std::vector<Section> sections;
  for (int i = 0; i < 257; ++i) sections.push_back(text("s" + std::to_string(i), ""));
  EXPECT_NE(refusal(encode(sections)).find("too many"), std::string::npos);
  sections.pop_back();
  EXPECT_EQ(refusal(encode(sections)), "");
}

TEST(SectionFile, OnlyUnknownMandatorySectionsAreRefused) {
  const Bytes bytes = sample();
  const SectionFile file(bytes, "x", kKind);
  file.check_known(std::array<std::string_view, 2>{"one", "empty"});
  try {
    file.check_known(std::array<std::string_view, 2>{"empty", "extra"});
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("'one'"), std::string::npos) << error.what();
  }
}

TEST(SectionFile, TellsWhatHasBeenRead) {
  const Bytes whole = encode({text("one", std::string(size_t{9} << 20, 'x'))});
  size_t n_read = 0;
  size_t most = 0;
  const SectionFile file(whole, "x", kKind, [&](std::span<const std::byte> piece) {
    EXPECT_EQ(piece.data(), whole.data() + n_read);
    n_read += piece.size();
    most = std::max(most, piece.size());
  });
  EXPECT_EQ(n_read, whole.size() - 8);
  EXPECT_LE(most, size_t{4} << 20);
}

}  // namespace
}  // namespace quire
