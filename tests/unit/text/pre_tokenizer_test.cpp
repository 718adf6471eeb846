// Where each pre-tokenizer cuts. The same cuts were compared at length with Hugging Face's tokenizers; here
// stand the borders that are easy to get wrong.
#include "text/pre_tokenizer.h"

#include <gtest/gtest.h>

#include <iterator>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"

namespace quire {
namespace {

using Words = std::vector<std::string>;

Words words_of(std::span<const SplitStep> steps, std::string_view text) {
  Words words;
  PreTokenizer(steps).split(text, [&](std::string_view word) { words.emplace_back(word); });
  return words;
}

Words split(const char* name, std::string_view text) {
  return words_of(pre_tokenizer_family(name).steps, text);
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

// The scanners against the expressions that they stand for: an expression that is equal but for a group that
// does nothing goes through PCRE2.
TEST(PreTokenizer, ScannersCutAsTheirExpressionsDo) {
  std::mt19937 rng(3);
  const std::string_view pool[] = {
      "a",  "Z",  "\xC3\xA9", "1",   "\xC2\xB2", " ", "\xC2\xA0", "\xE3\x80\x80",     "\t",
      "\n", "\r", "'s",       "'LL", "'",        "!", "\xCC\x81", "\xF0\x9F\x98\x80", "\xC5\xBF"};
  for (const char* name : {"gpt-2", "smollm", "llama-bpe", "qwen2"}) {
    std::vector<SplitStep> steps = pre_tokenizer_family(name).steps;
    for (SplitStep& step : steps) step.expression = "(?:" + step.expression + ")";
    for (int round = 0; round < 1500; ++round) {
      std::string text;
      for (size_t n = rng() % 16; n > 0; --n) text += pool[rng() % std::size(pool)];
      ASSERT_EQ(split(name, text), words_of(steps, text)) << name << ": " << text;
    }
  }
}

TEST(PreTokenizer, EachStepCutsWhatTheOneBeforeLeft) {
  const std::vector<SplitStep> steps{{"a+", SplitBehavior::kIsolated}, {"(?<=a)a", SplitBehavior::kIsolated}};
  EXPECT_EQ(words_of(steps, "xaaxa"), (Words{"x", "a", "a", "x", "a"}));
}

// Each line is within what one text may take, all of them together are not.
TEST(PreTokenizer, AllPiecesOfATextShareItsSteps) {
  const std::vector<SplitStep> steps{{"\n", SplitBehavior::kRemoved},
                                     {"(?:a|aa)+b", SplitBehavior::kIsolated}};
  const std::string line = std::string(26, 'a').append("cb\n");
  EXPECT_EQ(words_of(steps, line).size(), 1u);
  std::string text;
  for (int i = 0; i < 400; ++i) text += line;
  EXPECT_THROW(words_of(steps, text), Error);
}

TEST(PreTokenizer, BehaviorsOfASplit) {
  const auto cut = [](SplitBehavior behavior, bool inverted = false) {
    return words_of(std::vector<SplitStep>{{"-", behavior, inverted}}, "-a--b-");
  };
  EXPECT_EQ(cut(SplitBehavior::kIsolated), (Words{"-", "a", "-", "-", "b", "-"}));
  EXPECT_EQ(cut(SplitBehavior::kRemoved), (Words{"a", "b"}));
  EXPECT_EQ(cut(SplitBehavior::kRemoved, true), (Words{"-", "-", "-", "-"}));
  EXPECT_EQ(cut(SplitBehavior::kContiguous), (Words{"-", "a", "--", "b", "-"}));
  EXPECT_EQ(cut(SplitBehavior::kMergedWithPrevious), (Words{"-", "a-", "-", "b-"}));
  EXPECT_EQ(cut(SplitBehavior::kMergedWithNext), (Words{"-a", "-", "-b", "-"}));
}

TEST(PreTokenizer, NamesAreFoundByTheirRules) {
  for (const char* name : {"gpt-2", "smollm", "llama-bpe", "qwen2", "tekken", "gpt-4o"}) {
    const PreTokenizerFamily family = pre_tokenizer_family(name);
    EXPECT_EQ(pre_tokenizer_name(family.steps, family.normalizer, family.ignore_merges), name);
  }
  EXPECT_EQ(pre_tokenizer_name({}, {}, false), "");
}

TEST(PreTokenizer, UnknownNameIsRefusedByName) {
  try {
    pre_tokenizer_family("klingon");
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(
        error.what(),
        "pre-tokenizer 'klingon' is not supported; supported are gpt-2, smollm, llama-bpe, qwen2, tekken, "
        "gpt-4o, deepseek-r1-qwen, dbrx, smaug-bpe, starcoder, refact, command-r, phi-2, olmo, mpt");
  }
}

}  // namespace
}  // namespace quire
