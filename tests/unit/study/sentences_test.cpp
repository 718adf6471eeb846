#include "study/sentences.h"

#include <gtest/gtest.h>

namespace quire {
namespace {

using Sentences = std::vector<std::string>;

TEST(SplitSentences, AtTheirEnds) {
  EXPECT_EQ(split_sentences("One. Two! Three?  Four"), (Sentences{"One.", "Two!", "Three?", "Four"}));
  EXPECT_EQ(split_sentences("She said: \"Go.\" He left (so to say.) Then"),
            (Sentences{"She said: \"Go.\"", "He left (so to say.)", "Then"}));
  EXPECT_EQ(split_sentences("\xe2\x80\x9cYes.\xe2\x80\x9d No."),
            (Sentences{"\xe2\x80\x9cYes.\xe2\x80\x9d", "No."}));
}

TEST(SplitSentences, NotBehindTitlesNorBeforeSmallLetters) {
  EXPECT_EQ(split_sentences("Mr. Weston met Mrs. Elton. Both left."),
            (Sentences{"Mr. Weston met Mrs. Elton.", "Both left."}));
  EXPECT_EQ(split_sentences("\"Oh! no,\" said she."), (Sentences{"\"Oh! no,\" said she."}));
}

TEST(SplitSentences, WhiteSpaceBecomesABlank) {
  EXPECT_EQ(split_sentences("\n\tA  long\r\nline.\n\nAnother\x0bone. "),
            (Sentences{"A long line.", "Another one."}));
  EXPECT_TRUE(split_sentences("").empty());
  EXPECT_TRUE(split_sentences(" \n\t ").empty());
}

TEST(SplitSentences, TextWithoutEndsIsCutAtBlanks) {
  std::string text;
  for (int i = 0; i < 1000; ++i) text += "word ";
  const Sentences sentences = split_sentences(text);
  ASSERT_GT(sentences.size(), 4u);
  std::string joined;
  for (const std::string& sentence : sentences) {
    EXPECT_LE(sentence.size(), kLongestSentenceBytes + 5);
    joined += sentence + " ";
  }
  EXPECT_EQ(joined, text);
}

}  // namespace
}  // namespace quire
