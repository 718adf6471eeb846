#include "study/haystack.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "study/words.h"
#include "unit/engine/tiny_model.h"

namespace quire {
namespace {

std::string prose(int n) {
  std::string text;
  for (int i = 0; i < n; ++i) text += concat({"Sentence ", std::to_string(i), " stands here. "});
  return text;
}

class Haystack : public testing::Test {
 protected:
  std::string decode(const Tokens& tokens) const { return tiny.engine.tokenizer().decode(tokens); }

  test::TinyEngine tiny{{.n_threads = 1}};
  TokenText text{tiny.engine.tokenizer(), prose(40)};
};

TEST_F(Haystack, HasTheLengthAndEveryStatementOnce) {
  const std::vector<Tokens> statements = {text.encode("Fact one."), text.encode("Fact two."),
                                          text.encode("Fact three.")};
  for (const size_t n : {60, 200, 333}) {
    Random random(5);
    const Tokens hay = plant(text, 3, statements, n, random);
    EXPECT_EQ(hay.size(), n);
    const std::string said = decode(hay);
    size_t last = 0;
    for (const char* fact : {" Fact one.", " Fact two.", " Fact three."}) {
      const size_t at = said.find(fact);
      ASSERT_NE(at, std::string::npos) << said;
      EXPECT_EQ(said.find(fact, at + 1), std::string::npos);
      EXPECT_GE(at, last) << "in their order";
      last = at;
    }
  }
}

TEST_F(Haystack, WithoutTheStatementsIsTheText) {
  const std::vector<Tokens> statements = {text.encode("Fact one."), text.encode("Fact two.")};
  Random random(1);
  std::string said = decode(plant(text, 2, statements, 300, random));
  for (const std::string fact : {" Fact one.", " Fact two."}) said.erase(said.find(fact), fact.size());
  EXPECT_EQ(said, decode(plant(text, 2, {}, said.size(), random)));
  EXPECT_TRUE(said.starts_with(" Sentence 2 stands here. Sentence 3 stands")) << said;
}

TEST_F(Haystack, LastStartLeavesEnough) {
  for (const size_t n : {size_t{1}, size_t{100}, text.n_tokens()}) {
    const size_t start = text.last_start(n);
    size_t n_behind = 0;
    for (size_t i = start; i < text.n_sentences(); ++i) n_behind += text.sentence(i).size();
    EXPECT_GE(n_behind, n);
    EXPECT_LT(n_behind - text.sentence(start).size(), n) << "one later would be too late";
    Random random(1);
    EXPECT_EQ(plant(text, start, {}, n, random).size(), n);
  }
}

TEST_F(Haystack, RefusesAnEmptyText) { EXPECT_THROW(TokenText(tiny.engine.tokenizer(), " \n "), Error); }

TEST(Spread, OneInTheMiddleOfEachPart) {
  std::vector<std::vector<size_t>> seen;
  for (uint64_t seed = 0; seed < 30; ++seed) {
    Random random(seed);
    const std::vector<size_t> places = spread(random, 1600, 16);
    ASSERT_EQ(places.size(), 16u);
    for (size_t i = 0; i < 16; ++i) {
      EXPECT_GE(places[i], 100 * i + 25);
      EXPECT_LT(places[i], 100 * i + 75);
    }
    seen.push_back(places);
  }
  EXPECT_NE(seen[0], seen[1]);
}

TEST(Spread, MoreFactsThanSentences) {
  Random random(1);
  for (const size_t place : spread(random, 2, 9)) EXPECT_LT(place, 2u);
}

}  // namespace
}  // namespace quire
