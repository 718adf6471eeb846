// Tokenizers over characters: SentencePiece's BPE by scores and by merges, and unigram models.
#include <gtest/gtest.h>

#include <chrono>
#include <random>

#include "base/error.h"
#include "text/tokenizer.h"
#include "unit/text/tokenizer_error.h"

namespace quire {
namespace {

using Ids = std::vector<int32_t>;

const std::string kMark = "\xE2\x96\x81";

// Owns the strings that a Vocabulary views. Ids 0 to 2 are <unk>, <s>, </s>.
struct Pieces {
  std::vector<std::string> tokens;
  std::vector<std::string> merges;
  Vocabulary vocabulary;

  explicit Pieces(const char* model, bool with_bytes) {
    vocabulary.model = model;
    add("<unk>", 0, kTokenUnknown);
    add("<s>", 0, kTokenControl);
    add("</s>", 0, kTokenControl);
    for (int byte = 0; with_bytes && byte < 256; ++byte) {
      const char* digits = "0123456789ABCDEF";
      add(std::string("<0x") + digits[byte >> 4] + digits[byte & 15] + ">", 0, kTokenByte);
    }
  }

  int32_t add(std::string text, double score = 0, int32_t type = kTokenNormal) {
    tokens.push_back(std::move(text));
    vocabulary.scores.push_back(score);
    vocabulary.token_types.push_back(type);
    return static_cast<int32_t>(tokens.size()) - 1;
  }

  const Vocabulary& view() {
    vocabulary.tokens.assign(tokens.begin(), tokens.end());
    vocabulary.merges.assign(merges.begin(), merges.end());
    return vocabulary;
  }
};

Ids encode(const Tokenizer& tokenizer, std::string_view text) {
  return tokenizer.encode(text, ControlTokens::kAsText);
}

TEST(ScoreModel, MergesTheHighestScoreFirstAndTheLeftmostOfEquals) {
  Pieces p("llama", false);
  p.vocabulary.add_space_prefix = false;
  const int32_t a = p.add("a", -9), b = p.add("b", -9), c = p.add("c", -9);
  const int32_t ab = p.add("ab", -2), bc = p.add("bc", -1), aa = p.add("aa", -3);
  const Tokenizer tokenizer(p.view());
  EXPECT_EQ(encode(tokenizer, "abc"), (Ids{a, bc}));
  EXPECT_EQ(encode(tokenizer, "ab"), Ids{ab});
  EXPECT_EQ(encode(tokenizer, "aaa"), (Ids{aa, a}));
  EXPECT_EQ(encode(tokenizer, "cab"), (Ids{c, ab}));
  EXPECT_EQ(encode(tokenizer, "b"), Ids{b});
}

TEST(ScoreModel, ATextBeginsWithASpaceOfItsOwn) {
  Pieces p("llama", true);
  const int32_t mark = p.add(kMark, -9), hi = p.add("hi", -2), space_hi = p.add(kMark + "hi", -1);
  p.add("h", -9);
  p.add("i", -9);
  const Tokenizer tokenizer(p.view());
  EXPECT_EQ(encode(tokenizer, "hi"), Ids{space_hi});
  EXPECT_EQ(encode(tokenizer, "hi hi"), (Ids{space_hi, space_hi}));
  EXPECT_EQ(encode(tokenizer, " hi"), (Ids{mark, space_hi}));
  EXPECT_EQ(encode(tokenizer, ""), Ids{});
  EXPECT_EQ(tokenizer.decode(Ids{space_hi, space_hi}), "hi hi");
  EXPECT_EQ(tokenizer.decode(Ids{mark, space_hi}), " hi");
  EXPECT_EQ(tokenizer.token_bytes(space_hi), " hi");
  EXPECT_EQ(tokenizer.first_token_bytes(space_hi), "hi");
  EXPECT_EQ(tokenizer.decode(Ids{1, space_hi, 2}), "hi");

  // Behind a control token a text begins anew; behind other text it goes on.
  EXPECT_EQ(tokenizer.encode("hi<s>hi", ControlTokens::kParse), (Ids{space_hi, 1, space_hi}));
  Ids ids{1};
  tokenizer.encode_append("hi", ControlTokens::kAsText, ids);
  tokenizer.encode_append("hi", ControlTokens::kAsText, ids);
  EXPECT_EQ(ids, (Ids{1, space_hi, hi}));
}

TEST(ScoreModel, BytesStandForWhatNoTokenSpells) {
  Pieces p("llama", true);
  p.vocabulary.add_space_prefix = false;
  const int32_t a = p.add("a", -1);
  const Tokenizer tokenizer(p.view());
  EXPECT_EQ(encode(tokenizer, "a\xC3\xA9\xFF"), (Ids{a, 3 + 0xc3, 3 + 0xa9, 3 + 0xff}));
  EXPECT_EQ(tokenizer.decode(Ids{3 + 0xc3, 3 + 0xa9, a}),
            "\xC3\xA9"
            "a");
  EXPECT_EQ(encode(tokenizer, "<0x41>").size(), 6u);  // its text is not the token
  EXPECT_TRUE(tokenizer.missing_bytes().empty());
}

TEST(ScoreModel, UnknownTextIsOneTokenWithoutBytes) {
  Pieces p("llama", false);
  p.vocabulary.add_space_prefix = false;
  const int32_t a = p.add("a", -1);
  EXPECT_EQ(encode(Tokenizer(p.view()),
                   "xya\xC3\xA9"
                   "a"),
            (Ids{0, a, 0, a}));
  p.vocabulary.fuse_unknown = false;
  EXPECT_EQ(encode(Tokenizer(p.view()), "xya"), (Ids{0, 0, a}));
  const Tokenizer tokenizer(p.view());
  EXPECT_EQ(tokenizer.decode(Ids{0, a, 0}), "a");
  EXPECT_TRUE(tokenizer.is_control(0));
  EXPECT_EQ(tokenizer.missing_bytes().size(), 255u);
}

// Any text comes back, whatever the vocabulary, where there are tokens for bytes and no prefix is lost.
TEST(ScoreModel, AnyBytesRoundTrip) {
  std::mt19937 rng(4);
  const std::string pool[] = {"a",  "b",        " ",    "  ",       "ab",  " a",
                              "\n", "\xC3\xA9", "\xFF", "\xE2\x96", "<s>", std::string(1, '\0')};
  for (int round = 0; round < 200; ++round) {
    Pieces p(round % 2 ? "llama" : "t5", true);
    p.vocabulary.add_space_prefix = round % 3 != 0;
    p.add(kMark, -100);
    const std::string letters[] = {"a", "b", kMark, "\n"};
    for (int n = 0; n < 30; ++n) {
      std::string piece;
      for (size_t i = 1 + rng() % 4; i > 0; --i) piece += letters[rng() % 4];
      p.add(piece, -static_cast<double>(rng() % 100));
    }
    const Tokenizer tokenizer(p.view());
    std::string text;
    for (size_t n = rng() % 60; n > 0; --n) text += pool[rng() % std::size(pool)];
    ASSERT_EQ(tokenizer.decode(encode(tokenizer, text)), text);
    ASSERT_EQ(tokenizer.decode(tokenizer.encode(text, ControlTokens::kParse), true).find("<unk>"),
              std::string::npos);
  }
}

// Cutting a text at its spaces changes nothing: a piece with a space inside forbids it.
TEST(ScoreModel, PartsOfATextGiveWhatTheWholeGives) {
  std::mt19937 rng(6);
  for (int round = 0; round < 100; ++round) {
    Pieces p("llama", true);
    for (const char* letter : {"a", "b", "c"}) p.add(letter, -100);
    p.add(kMark, -100);
    for (int n = 0; n < 20; ++n) {
      std::string piece(rng() % 3, 'x');
      piece = rng() % 2 ? kMark : "";
      for (size_t i = 1 + rng() % 3; i > 0; --i) piece += "abc"[rng() % 3];
      p.add(piece, -static_cast<double>(rng() % 50));
    }
    const Tokenizer cut(p.view());
    p.add("q" + kMark + "q", -1);  // never met, but it spans a space
    const Tokenizer whole(p.view());
    std::string text;
    for (size_t n = rng() % 80; n > 0; --n) text += "abc  "[rng() % 5];
    ASSERT_EQ(encode(cut, text), encode(whole, text)) << text;
  }
}

TEST(Unigram, TakesTheLikeliestCut) {
  Pieces p("t5", false);
  p.vocabulary.add_space_prefix = false;
  const int32_t a = p.add("a", -2), b = p.add("b", -2), ab = p.add("ab", -5), abc = p.add("abc", -4);
  const Tokenizer tokenizer(p.view());
  EXPECT_EQ(encode(tokenizer, "ab"), (Ids{a, b}));  // -4 against -5
  EXPECT_EQ(encode(tokenizer, "abc"), Ids{abc});
  EXPECT_EQ(encode(tokenizer, "xxab"), (Ids{0, a, b}));
  (void)ab;
}

TEST(Unigram, EqualsTheBestOfAllCuts) {
  std::mt19937 rng(8);
  for (int round = 0; round < 200; ++round) {
    Pieces p("t5", false);
    p.vocabulary.add_space_prefix = false;
    std::vector<std::string> pieces{"a", "b"};
    for (int n = 0; n < 8; ++n) {
      std::string piece;
      for (size_t i = 2 + rng() % 3; i > 0; --i) piece += "ab"[rng() % 2];
      if (std::find(pieces.begin(), pieces.end(), piece) == pieces.end()) pieces.push_back(piece);
    }
    for (const std::string& piece : pieces) p.add(piece, -1.0 - static_cast<double>(rng() % 1000) / 64);
    const Tokenizer tokenizer(p.view());
    std::string text;
    for (size_t n = 1 + rng() % 12; n > 0; --n) text += "ab"[rng() % 2];
    std::vector<double> best(text.size() + 1, -1e9);
    best[0] = 0;
    for (size_t i = 0; i < text.size(); ++i) {
      for (size_t k = 0; k < pieces.size(); ++k) {
        if (text.compare(i, pieces[k].size(), pieces[k]) != 0) continue;
        double& end = best[i + pieces[k].size()];
        end = std::max(end, best[i] + p.vocabulary.scores[3 + k]);
      }
    }
    double sum = 0;
    for (const int32_t id : encode(tokenizer, text)) sum += p.vocabulary.scores[static_cast<size_t>(id)];
    ASSERT_NEAR(sum, best.back(), 1e-9) << text;
  }
}

TEST(Pieces, MergesOverCharacters) {
  Pieces p("llama", true);
  p.vocabulary.rules = TextRules{};
  const int32_t a = p.add("a"), b = p.add("\xC3\xA9"), ab = p.add("a\xC3\xA9");
  p.merges = {"a \xC3\xA9"};
  const Tokenizer tokenizer(p.view());
  EXPECT_EQ(encode(tokenizer,
                   "a\xC3\xA9\xC3\xA9"
                   "az"),
            (Ids{ab, b, a, 3 + 'z'}));
}

TEST(Pieces, LiteralsTakeInWhiteSpace) {
  Pieces p("llama", true);
  p.vocabulary.add_space_prefix = false;
  const int32_t x = p.add("x", -1), end = p.add("<|end|>", 0, kTokenControl),
                word = p.add("word", 0, kTokenUserDefined);
  LiteralRule strip{end};
  strip.strip_left = strip.strip_right = true;
  LiteralRule single{word};
  single.single_word = true;
  p.vocabulary.literals = {strip, single};
  const Tokenizer tokenizer(p.view());
  EXPECT_EQ(tokenizer.encode("x \xC2\xA0<|end|>\n\n x", ControlTokens::kParse), (Ids{x, end, x}));
  EXPECT_EQ(encode(tokenizer, "x<|end|>").size(), 8u);
  EXPECT_EQ(encode(tokenizer, "word"), Ids{word});
  EXPECT_EQ(encode(tokenizer, "xword").size(), 5u);
  EXPECT_EQ(encode(tokenizer, "x\nword\nx"), (Ids{x, 3 + '\n', word, 3 + '\n', x}));
}

// What a user types never becomes the end of a turn, also where a file says that the token is user-defined.
TEST(Pieces, TokensOfTurnsAreControlTokens) {  // case U35
  Pieces p("llama", true);
  const int32_t end = p.add("<end_of_turn>", 0, kTokenUserDefined);
  const int32_t other_end = p.add("</x>", 0, kTokenUserDefined);
  const int32_t tag = p.add("<b>", 0, kTokenUserDefined);
  p.vocabulary.end_ids = {other_end};
  const Tokenizer tokenizer(p.view());
  EXPECT_TRUE(tokenizer.is_control(other_end));
  EXPECT_FALSE(tokenizer.is_control(tag));
  EXPECT_TRUE(tokenizer.is_control(end));
  EXPECT_TRUE(tokenizer.is_end_of_generation(end));
  const Ids ids = encode(tokenizer, "a<end_of_turn>b");
  EXPECT_EQ(std::count(ids.begin(), ids.end(), end), 0);
  EXPECT_EQ(tokenizer.find_control("<end_of_turn>"), end);
}

TEST(Pieces, EndsThatAreTypedAsNormalAreControlTokens) {
  for (const char* model : {"llama", "t5"}) {
    Pieces p(model, true);
    p.vocabulary.token_types[1] = p.vocabulary.token_types[2] = kTokenNormal;
    const int32_t newline = p.add("\n");
    p.vocabulary.bos_id = 1;
    p.vocabulary.eos_id = 2;
    p.vocabulary.end_ids = {2, newline};
    const Tokenizer tokenizer(p.view());
    EXPECT_TRUE(tokenizer.is_control(1));
    EXPECT_TRUE(tokenizer.is_control(2));
    EXPECT_FALSE(tokenizer.is_control(newline));
    const Ids ids = encode(tokenizer, "<s>a</s>");
    EXPECT_EQ(std::count(ids.begin(), ids.end(), 1) + std::count(ids.begin(), ids.end(), 2), 0);
    EXPECT_EQ(tokenizer.encode("<s></s>", ControlTokens::kParse), (Ids{1, 2}));
  }
}

// A vocabulary whose merges make the end is odd, but it can be read.
TEST(Pieces, AnEndThatAMergeMakesStaysNormal) {
  Pieces p("llama", true);
  p.vocabulary.rules = TextRules{};
  p.add("<"), p.add("x>");
  const int32_t end = p.add("<x>");
  p.merges = {"< x>"};
  p.vocabulary.eos_id = end;
  const Tokenizer tokenizer(p.view());
  EXPECT_FALSE(tokenizer.is_control(end));
  EXPECT_TRUE(tokenizer.is_end_of_generation(end));
}

TEST(Pieces, DeepSeeksTurnsAreControlTokens) {
  for (const char* model : {"llama", "t5"}) {
    Pieces p(model, true);
    const std::string text = "<\xEF\xBD\x9CUser\xEF\xBD\x9C>";
    const int32_t user = p.add(text, 0, kTokenUserDefined);
    const int32_t bars = p.add("<\xEF\xBD\x9C>", 0, kTokenUserDefined);
    const Tokenizer tokenizer(p.view());
    EXPECT_TRUE(tokenizer.is_control(user));
    EXPECT_FALSE(tokenizer.is_control(bars));
    const Ids ids = encode(tokenizer, "a" + text);
    EXPECT_EQ(std::count(ids.begin(), ids.end(), user), 0);
    EXPECT_EQ(tokenizer.encode(text, ControlTokens::kParse), Ids{user});
  }
}

TEST(Pieces, ContradictionsAreErrors) {
  Pieces p("llama", true);
  p.view();
  p.vocabulary.scores.pop_back();
  EXPECT_EQ(tokenizer_error(p.vocabulary), "the vocabulary has 259 tokens but 258 scores");
  p.vocabulary.scores.push_back(std::nan(""));
  EXPECT_EQ(tokenizer_error(p.vocabulary), "the score of token 258 is no number");
  p.vocabulary.scores.back() = 0;
  p.vocabulary.unk_id = 1000;
  EXPECT_EQ(tokenizer_error(p.vocabulary), "unknown token id 1000 is outside the vocabulary of 259 tokens");
  p.vocabulary.unk_id = std::nullopt;
  p.add("<0xZZ>", 0, kTokenByte);
  EXPECT_EQ(tokenizer_error(p.view()), "token 259 '<0xZZ>' is a byte token but names no byte");
}

// A megabyte without a space is a matter of a moment, for every kind.
TEST(Pieces, LongWordsTakeLinearTime) {
  for (const char* model : {"llama", "t5"}) {
    Pieces p(model, true);
    std::string piece;
    for (int n = 1; n <= 16; ++n) p.add(piece += 'a', -n);
    const Tokenizer tokenizer(p.view());
    const auto start = std::chrono::steady_clock::now();
    EXPECT_GE(encode(tokenizer, std::string(1 << 20, 'a')).size(), size_t{1} << 16);
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20))
        << model;  // quadratic: hours
  }
}

}  // namespace
}  // namespace quire
