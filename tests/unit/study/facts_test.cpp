#include "study/facts.h"

#include <gtest/gtest.h>

#include <regex>
#include <set>

namespace quire {
namespace {

TEST(Facts, QuestionAndAnswerAreTheBeginningOfTheStatement) {
  for (const Fact& fact : make_facts(7, kMostFacts)) {
    EXPECT_TRUE(fact.statement.starts_with(fact.question + fact.answer)) << fact.statement;
    EXPECT_TRUE(fact.answer.starts_with(" ") && !fact.question.ends_with(" ")) << fact.statement;
  }
}

TEST(Facts, OfEachKindInTurn) {
  const std::vector<Fact> facts = make_facts(1, 16);
  ASSERT_EQ(facts.size(), 16u);
  const char* forms[] = {
      R"(The [a-z]+ code of [A-Z][a-z]+ is [1-9]\d{4}\.)",
      R"(The [a-z]+ password of [A-Z][a-z]+ is [a-z]+ [a-z]+ [a-z]+\.)",
      R"(Passing the [a-z]+ [a-z]+, [A-Z][a-z]+ said: "The [a-z]+ [a-z]+ was [a-z]+ by [a-z]+ [a-z]+ [a-z]+\.")"};
  for (size_t i = 0; i < facts.size(); ++i) {
    EXPECT_EQ(facts[i].kind, kFactKinds[i % 3]);
    EXPECT_TRUE(std::regex_match(facts[i].statement, std::regex(forms[i % 3]))) << facts[i].statement;
  }
}

TEST(Facts, AllDifferent) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    std::set<std::string> questions;
    std::set<std::string> answers;
    std::set<std::string> names;
    for (const Fact& fact : make_facts(seed, kMostFacts)) {
      questions.insert(fact.question);
      answers.insert(fact.answer);
      std::smatch name;
      ASSERT_TRUE(std::regex_search(fact.question, name, std::regex("(?:of|,) ([A-Z][a-z]+)")))
          << fact.question;
      names.insert(name[1]);
    }
    EXPECT_EQ(questions.size(), kMostFacts);
    EXPECT_EQ(answers.size(), kMostFacts);
    EXPECT_EQ(names.size(), kMostFacts);
  }
}

TEST(Facts, OfASeed) {
  const auto statements = [](uint64_t seed) {
    std::string all;
    for (const Fact& fact : make_facts(seed, 6)) all += fact.statement;
    return all;
  };
  EXPECT_EQ(statements(3), statements(3));
  EXPECT_NE(statements(3), statements(4));
}

}  // namespace
}  // namespace quire
