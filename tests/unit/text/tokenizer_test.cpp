#include "text/tokenizer.h"

#include <gtest/gtest.h>

#include <iterator>
#include <random>

#include "base/error.h"
#include "test_vocabulary.h"
#include "unit/text/tokenizer_error.h"

namespace quire {
namespace {

using Ids = std::vector<int32_t>;

TEST(Tokenizer, MergesBestRankFirst) {
  TestVocabulary v;
  const int32_t bc = v.merge("b", "c");
  v.merge("a", "b");
  const int32_t abc = v.merge("a", "bc");
  const int32_t space_a = v.merge("\xC4\xA0", "a");  // U+0120 is the space
  const Tokenizer tokenizer(v.view());
  EXPECT_EQ(tokenizer.encode("abc bc a", ControlTokens::kAsText), (Ids{abc, ' ', bc, space_a}));
  EXPECT_EQ(tokenizer.token_bytes(space_a), " a");
  EXPECT_EQ(tokenizer.decode(Ids{abc, ' ', bc, space_a}), "abc bc a");
}

TEST(Tokenizer, ControlTokensOnlyWhenParsing) {
  TestVocabulary v;
  const int32_t end = v.add("<|end|>", kTokenControl);
  const int32_t end_of = v.add("<|end|>of", kTokenControl);
  const Tokenizer tokenizer(v.view());
  EXPECT_EQ(tokenizer.encode("a<|end|>o<|end|>of<|end|", ControlTokens::kParse),
            (Ids{'a', end, 'o', end_of, '<', '|', 'e', 'n', 'd', '|'}));
  for (const int32_t id : tokenizer.encode("<|end|>", ControlTokens::kAsText)) EXPECT_LT(id, 256);
  EXPECT_EQ(tokenizer.decode(Ids{'a', end, 'b'}), "ab");
  EXPECT_EQ(tokenizer.decode(Ids{'a', end, 'b'}, true), "a<|end|>b");
  EXPECT_EQ(tokenizer.find_control("<|end|>"), end);
  EXPECT_EQ(tokenizer.find_control("<|end"), std::nullopt);
  EXPECT_TRUE(tokenizer.is_control(end));
  EXPECT_TRUE(tokenizer.is_end_of_generation(end));
  EXPECT_FALSE(tokenizer.is_end_of_generation(end_of));
  EXPECT_FALSE(tokenizer.is_control(-1));
  EXPECT_FALSE(tokenizer.is_control(tokenizer.size()));
}

TEST(Tokenizer, UserDefinedTokensAlways) {
  TestVocabulary v;
  const int32_t tool = v.add("[TOOL]", kTokenUserDefined);
  const Tokenizer tokenizer(v.view());
  for (const ControlTokens mode : {ControlTokens::kParse, ControlTokens::kAsText}) {
    EXPECT_EQ(tokenizer.encode("x[TOOL]y", mode), (Ids{'x', tool, 'y'}));
  }
  EXPECT_EQ(tokenizer.decode(Ids{tool}), "[TOOL]");
  EXPECT_EQ(tokenizer.find_control("[TOOL]"), std::nullopt);
}

TEST(Tokenizer, LlamaTakesAWholeWordWithoutMerging) {
  TestVocabulary v;
  v.merge("a", "b");
  const int32_t abc = v.add("abc");  // no merge makes it
  EXPECT_EQ(Tokenizer(v.view()).encode("abc", ControlTokens::kAsText).size(), 2u);
  v.pre_tokenizer = "llama-bpe";
  EXPECT_EQ(Tokenizer(v.view()).encode("abc", ControlTokens::kAsText), Ids{abc});
}

TEST(Tokenizer, AnyBytesRoundTrip) {
  TestVocabulary v;
  v.merge("a", "a");
  v.merge("aa", "aa");
  v.add("<|x|>", kTokenControl);
  std::mt19937 rng(9);
  for (const char* pre_tokenizer : {"gpt-2", "smollm", "llama-bpe", "tekken"}) {
    v.pre_tokenizer = pre_tokenizer;
    const Tokenizer tokenizer(v.view());
    EXPECT_TRUE(tokenizer.missing_bytes().empty());
    for (int round = 0; round < 300; ++round) {
      std::string bytes(rng() % 80, '\0');
      const uint32_t range = round % 2 == 0 ? 256 : 4;
      for (char& c : bytes) c = static_cast<char>(range == 4 ? "a <\n"[rng() % 4] : rng() % range);
      const Ids ids = tokenizer.encode(bytes, round % 3 ? ControlTokens::kAsText : ControlTokens::kParse);
      ASSERT_EQ(tokenizer.decode(ids, true), bytes);
    }
  }
}

TEST(Tokenizer, EncodeAppendKeepsWhatIsThere) {
  const Tokenizer tokenizer(TestVocabulary().view());
  Ids ids{7};
  tokenizer.encode_append("ab", ControlTokens::kAsText, ids);
  tokenizer.encode_append("", ControlTokens::kAsText, ids);
  EXPECT_EQ(ids, (Ids{7, 'a', 'b'}));
}

TEST(Tokenizer, BytesWithoutATokenAreNamedAndDropped) {
  TestVocabulary v;
  v.types[0xff] = kTokenUnused;
  const Tokenizer tokenizer(v.view());
  EXPECT_EQ(tokenizer.missing_bytes(), std::vector<uint8_t>{0xff});
  EXPECT_EQ(tokenizer.encode("a\xFF"
                             "b",
                             ControlTokens::kAsText),
            (Ids{'a', 'b'}));
}

TEST(Tokenizer, DecodingAnIdOutsideTheVocabularyIsAnError) {
  const Tokenizer tokenizer(TestVocabulary().view());
  EXPECT_THROW(tokenizer.decode(Ids{256}), Error);
  EXPECT_THROW(tokenizer.token_bytes(-1), Error);
}

TEST(Tokenizer, OtherModelsAreRefusedByName) {  // case U41
  Vocabulary v;
  v.model = "bert";
  EXPECT_EQ(tokenizer_error(v),
            "tokenizer model 'bert' is not supported; supported are gpt2 (byte-level BPE), llama "
            "(SentencePiece's BPE) "
            "and t5 (unigram)");
  v.model = "gpt2";
  v.pre_tokenizer = "deepseek-llm";
  EXPECT_EQ(tokenizer_error(v).substr(0, 72),
            "pre-tokenizer 'deepseek-llm' is not supported; supported are gpt-2, smol");
}

TEST(Tokenizer, ContradictionsInTheVocabularyAreErrors) {
  const auto with = [](auto change) {
    TestVocabulary v;
    change(v);
    return tokenizer_error(v.view());
  };
  EXPECT_EQ(with([](TestVocabulary& v) { v.types.pop_back(); }),
            "the vocabulary has 256 tokens but 255 token types");
  EXPECT_EQ(with([](TestVocabulary& v) { v.types[3] = 9; }), "token 3 has the unknown type 9");
  EXPECT_EQ(with([](TestVocabulary& v) { v.add("a"); }), "tokens 97 and 256 are both 'a'");
  EXPECT_EQ(with([](TestVocabulary& v) { v.tokens[97] = "aa"; }),
            "the vocabulary has no token for byte 97, thus it is not a byte-level one");
  EXPECT_EQ(with([](TestVocabulary& v) { v.merges = {"a b"}; }),
            "merge 0 'a b' makes a piece that is no token");
  EXPECT_EQ(with([](TestVocabulary& v) { v.merges = {"aa b"}; }),
            "merge 0 'aa b' joins a piece that is no token");
  EXPECT_EQ(with([](TestVocabulary& v) { v.merges = {"ab"}; }), "merge 0 'ab' is not a pair");
  EXPECT_EQ(with([](TestVocabulary& v) { v.merge("a", "b"), v.merges.push_back("a b"); }),
            "merge 1 'a b' is there twice");
  const auto add_twice = [](TestVocabulary& v) {
    v.add("<x>", kTokenControl);
    v.add("<x>", kTokenUserDefined);
  };
  EXPECT_EQ(with(add_twice), "tokens 256 and 257 are both '<x>'");
  EXPECT_EQ(with([](TestVocabulary& v) { v.add("", kTokenControl); }),
            "token 256 is special but has no text");
}

TEST(Tokenizer, AMergeNeverMakesAControlToken) {
  TestVocabulary v;
  v.merge("<", ">");
  v.types.back() = kTokenControl;
  EXPECT_EQ(tokenizer_error(v.view()), "merge 0 '< >' makes a piece that is no token");
}

TEST(Tokenizer, NamedIdsAreChecked) {
  const TestVocabulary tokens;
  Vocabulary v = tokens.view();
  v.eos_id = 256;
  EXPECT_EQ(tokenizer_error(v), "eos token id 256 is outside the vocabulary of 256 tokens");
  v.eos_id = std::nullopt;
  v.add_bos = true;
  EXPECT_EQ(tokenizer_error(v), "the vocabulary asks for a bos token but names none");
}

// A file can hold anything: the constructor refuses with an Error, or the tokenizer works.
TEST(Tokenizer, RandomVocabulariesAreRefusedOrWork) {
  std::mt19937 rng(21);
  const std::string_view pool[] = {"a", "b", "ab", " ", "\xC4\xA0", "\xFF", "\xC4", "<", "", "\xE6\xBC\xA2"};
  const auto random_text = [&] {
    std::string text;
    for (size_t n = rng() % 4; n > 0; --n) text += pool[rng() % std::size(pool)];
    return text;
  };
  int n_worked = 0;
  for (int round = 0; round < 3000; ++round) {
    TestVocabulary v;
    const auto kind = [&] { return rng() % 8 ? 1 + static_cast<int32_t>(rng() % 6) : kTokenNormal; };
    for (size_t n = rng() % 4; n > 0; --n) v.add(random_text(), kind());
    if (rng() % 2) v.merges.push_back(v.tokens[rng() % v.tokens.size()] + " " + random_text());
    if (rng() % 2) v.merge("a", "b");
    try {
      const Tokenizer tokenizer(v.view());
      const std::string text = random_text() + random_text() + random_text();
      ASSERT_EQ(tokenizer.decode(tokenizer.encode(text, ControlTokens::kParse), true), text);
      ++n_worked;
    } catch (const Error&) {
    }
  }
  EXPECT_GT(n_worked, 300);
}

}  // namespace
}  // namespace quire
