// Where each pre-tokenizer cuts. The same cuts were compared at length with Hugging Face's tokenizers; here
// stand the borders that are easy to get wrong.
#include "text/pre_tokenizer.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/error.h"

namespace quire {
namespace {

using Words = std::vector<std::string>;

Words split(const char* name, std::string_view text) {
  const PreTokenizer pre_tokenizer(name);
  Words words;
  while (!text.empty()) {
    const size_t size_bytes = pre_tokenizer.next_word(text);
    words.emplace_back(text.substr(0, size_bytes));
    text.remove_prefix(size_bytes);
  }
  return words;
}

TEST(PreTokenizer, Gpt2TakesOneSpaceWithTheWord) {
  EXPECT_EQ(split("gpt-2", "a b  c 12!"), (Words{"a", " b", " ", " c", " 12", "!"}));
  EXPECT_EQ(split("gpt-2", "a\n\n b  "), (Words{"a", "\n\n", " b", "  "}));
  EXPECT_EQ(split("gpt-2", "a\tb"), (Words{"a", "\t", "b"}));
}

TEST(PreTokenizer, Gpt2ContractionsAreLowerCaseOnly) {
  EXPECT_EQ(split("gpt-2", "I'll it'sx"), (Words{"I", "'ll", " it", "'s", "x"}));
  EXPECT_EQ(split("gpt-2", "I'LL 's"), (Words{"I", "'", "LL", " '", "s"}));
}

TEST(PreTokenizer, SmolLmCutsDigitsFirst) {
  EXPECT_EQ(split("smollm", "a 12  3"), (Words{"a", " ", "1", "2", "  ", "3"}));
  EXPECT_EQ(split("smollm", "x\xC2\xB2 y"), (Words{"x", "\xC2\xB2", " y"}));  // superscript two is a number
  EXPECT_EQ(split("gpt-2", "a  3"), (Words{"a", " ", " 3"}));
}

TEST(PreTokenizer, Llama3TakesThreeDigitsAndOneSymbolBeforeLetters) {
  EXPECT_EQ(split("llama-bpe", "1234567 (ab) \tc"), (Words{"123", "456", "7", " (", "ab", ")", " ", "\tc"}));
  EXPECT_EQ(split("llama-bpe", "(ab"), (Words{"(ab"}));
  EXPECT_EQ(split("llama-bpe", "!!\r\n\r\nx"), (Words{"!!\r\n\r\n", "x"}));
  EXPECT_EQ(split("llama-bpe", "a \n \n  b"), (Words{"a", " \n \n", " ", " b"}));
  EXPECT_EQ(split("llama-bpe", "I'LL"), (Words{"I", "'LL"}));
  EXPECT_EQ(split("llama-bpe", "a'\xC5\xBF"), (Words{"a", "'\xC5\xBF"}));  // long s
}

TEST(PreTokenizer, Qwen2TakesOneDigit) { EXPECT_EQ(split("qwen2", " 12a"), (Words{" ", "1", "2", "a"})); }

TEST(PreTokenizer, UnicodeSpacesAndInvalidBytes) {
  EXPECT_EQ(split("gpt-2", "a\xC2\xA0\xE3\x80\x80z"), (Words{"a", "\xC2\xA0", "\xE3\x80\x80", "z"}));
  EXPECT_EQ(split("gpt-2", "a\xFF\xC3 \xF0\x9F!"), (Words{"a", "\xFF\xC3", " \xF0\x9F!"}));
}

TEST(PreTokenizer, UnknownNameIsRefusedByName) {
  try {
    PreTokenizer("tekken");
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "pre-tokenizer 'tekken' is not supported; supported are smollm, gpt-2, llama-bpe and qwen2");
  }
}

}  // namespace
}  // namespace quire
