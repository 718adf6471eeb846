#include "study/ruler_generate.h"

#include <gtest/gtest.h>

#include <map>
#include <regex>
#include <set>
#include <sstream>

#include "base/error.h"
#include "study/words.h"

namespace quire {
namespace {

constexpr size_t kLongPrompt = 8192;

std::string prose() {
  std::string text;
  for (int i = 0; i < 300; ++i) {
    std::string word(4, 'a');
    for (int j = 0, n = i; j < 4; ++j, n /= 26)
      word[static_cast<size_t>(j)] = static_cast<char>('a' + n % 26);
    text += concat({"The ", word, "ly sentence ", std::to_string(i), " is told. "});
  }
  return text;
}

const RulerMaterial& material() {
  static const RulerMaterial made(prose());
  return made;
}

// Something like tokens.
size_t count_tokens(std::string_view text) { return (text.size() + 3) / 4; }

RulerSample make(std::string_view task, size_t length, uint64_t seed = 1) {
  return make_ruler_sample(ruler_task(task), material(), length, seed, count_tokens);
}

RulerSample fill(std::string_view task, size_t n_hay, size_t length = kLongPrompt, uint64_t seed = 1) {
  return fill_ruler_sample(ruler_task(task), material(), length, seed, n_hay);
}

size_t count(const std::string& text, std::string_view what) {
  size_t n = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++n;
  return n;
}

size_t tokens_of(const RulerSample& sample) {
  return count_tokens(sample.context + sample.question + sample.answer_prefix) + sample.task->max_new_tokens;
}

std::map<std::string, size_t> word_counts(const std::string& text) {
  std::map<std::string, size_t> counts;
  std::istringstream words(text);
  for (std::string word; words >> word;) ++counts[word];
  return counts;
}

TEST(RulerTasks, HaveThePublishedParameters) {
  ASSERT_EQ(ruler_tasks().size(), 11u);
  const auto keys_values_queries = [](std::string_view name) {
    const NeedleSetting& needle = ruler_task(name).needle;
    return std::vector<size_t>{needle.n_keys, needle.n_values, needle.n_queries};
  };
  EXPECT_EQ(keys_values_queries("niah_multikey_1"), (std::vector<size_t>{4, 1, 1}));
  EXPECT_EQ(keys_values_queries("niah_multivalue"), (std::vector<size_t>{1, 4, 1}));
  EXPECT_EQ(keys_values_queries("niah_multiquery"), (std::vector<size_t>{4, 1, 4}));
  EXPECT_EQ(ruler_task("niah_multikey_3").needle.keys, NeedleText::kUuids);
  EXPECT_EQ(ruler_task("niah_single_3").max_new_tokens, 128u);
  EXPECT_EQ(ruler_task("vt").max_new_tokens, 30u);
  EXPECT_EQ(ruler_task("cwe").max_new_tokens, 120u);
  EXPECT_EQ(ruler_task("fwe").max_new_tokens, 50u);
  EXPECT_THROW(ruler_task("qa_1"), Error);
}

class EveryTask : public testing::TestWithParam<std::string_view> {};

TEST_P(EveryTask, FillsItsLengthAndNoMore) {
  for (const size_t length : {2048, 4096, 16384}) {
    for (const uint64_t seed : {1, 2}) {
      const size_t n = tokens_of(make(GetParam(), length, seed));
      EXPECT_LE(n, length);
      EXPECT_GT(n, length - length / 20);
    }
  }
}

TEST_P(EveryTask, HasEveryAnswerInItsContext) {
  for (const uint64_t seed : {1, 2, 3}) {
    const RulerSample sample = make(GetParam(), 4096, seed);
    ASSERT_FALSE(sample.answers.empty());
    EXPECT_EQ(std::set<std::string>(sample.answers.begin(), sample.answers.end()).size(),
              sample.answers.size());
    for (const std::string& answer : sample.answers) {
      EXPECT_GT(count(sample.context, answer), 0u) << answer;
      EXPECT_EQ(count(sample.question + sample.answer_prefix, answer), 0u) << "told by the question";
      EXPECT_EQ(count(sample.answer, answer), 1u);
    }
  }
}

TEST_P(EveryTask, IsTheSameForASeed) {
  const auto text = [](const RulerSample& sample) {
    return sample.context + sample.question + sample.answer;
  };
  EXPECT_EQ(text(make(GetParam(), 3000, 5)), text(make(GetParam(), 3000, 5)));
  EXPECT_NE(text(make(GetParam(), 3000, 5)), text(make(GetParam(), 3000, 6)));
  EXPECT_NE(make(GetParam(), 3000, 5).answers, make(GetParam(), 3000, 6).answers);
}

// The length that the refusal names is the least that is enough.
TEST_P(EveryTask, RefusesALengthThatIsTooShort) {
  std::string sentence;
  try {
    make(GetParam(), 60);
  } catch (const Error& error) {
    sentence = error.what();
  }
  const std::regex form(
      "the task [a-z_0-9]+ needs at least ([0-9]+) tokens with its answer, and a length of 60 .*");
  std::smatch parts;
  ASSERT_TRUE(std::regex_match(sentence, parts, form)) << sentence;
  const size_t n_least = std::stoul(parts[1]);
  EXPECT_THROW(make(GetParam(), n_least - 1), Error);
  EXPECT_LE(tokens_of(make(GetParam(), n_least)), n_least);
}

std::string name_of(const testing::TestParamInfo<std::string_view>& info) { return std::string(info.param); }
INSTANTIATE_TEST_SUITE_P(Ruler, EveryTask,
                         testing::Values("niah_single_1", "niah_single_2", "niah_single_3", "niah_multikey_1",
                                         "niah_multikey_2", "niah_multikey_3", "niah_multivalue",
                                         "niah_multiquery", "vt", "cwe", "fwe"),
                         name_of);

TEST(RulerNeedles, AsManyAsTheTaskSays) {
  const std::map<std::string, size_t> n_needles = {
      {"niah_single_1", 1},   {"niah_single_2", 1},   {"niah_single_3", 1},    {"niah_multikey_1", 4},
      {"niah_multivalue", 4}, {"niah_multiquery", 4}, {"niah_multikey_2", 61}, {"niah_multikey_3", 61}};
  for (const auto& [task, n] : n_needles) {
    for (const uint64_t seed : {1, 2, 3, 4}) {
      const RulerSample sample = fill(task, 60, kLongPrompt, seed);
      EXPECT_EQ(count(sample.context, "A hidden "), n) << task;
      for (const std::string& answer : sample.answers) EXPECT_EQ(count(sample.context, answer), 1u) << task;
    }
  }
  EXPECT_EQ(count(fill("niah_single_1", 60).context, std::string(noise_line())), 60u);
}

TEST(RulerNeedles, AnswersBelongToTheKeysAskedFor) {
  for (const char* task : {"niah_multikey_1", "niah_multikey_2", "niah_multivalue", "niah_multiquery"}) {
    const RulerSample sample = fill(task, 60);
    std::set<std::string> values;
    const std::regex form("A hidden number of ([a-z-]+) is ([0-9]{7})\\.");
    for (std::sregex_iterator at(sample.context.begin(), sample.context.end(), form), end; at != end; ++at) {
      if (count(sample.question, " " + (*at)[1].str()) > 0) values.insert((*at)[2]);
    }
    EXPECT_EQ(values, std::set<std::string>(sample.answers.begin(), sample.answers.end())) << task;
  }
}

TEST(RulerNeedles, KeysAreDifferentWhenWordsRunOut) {
  const RulerSample sample = fill("niah_multikey_2", 9000);
  std::set<std::string> keys;
  const std::regex form("of ([a-z-]+) is [0-9]{7}");
  for (std::sregex_iterator at(sample.context.begin(), sample.context.end(), form), end; at != end; ++at) {
    keys.insert((*at)[1]);
  }
  EXPECT_EQ(keys.size(), 9001u);
}

TEST(RulerNeedles, ProseIsTheTextInOrderAndBeginsAnew) {
  std::string context = fill("niah_single_2", 700).context;
  EXPECT_EQ(count(context, "is told."), 700u);
  context = std::regex_replace(context, std::regex("A hidden [^.]*\\. ?"), "");
  const std::regex number("sentence ([0-9]+) is");
  size_t previous = 300;
  for (std::sregex_iterator at(context.begin(), context.end(), number), end; at != end; ++at) {
    const size_t i = std::stoul((*at)[1]);
    if (previous < 300) {
      EXPECT_EQ(i, (previous + 1) % 300);
    }
    previous = i;
  }
}

TEST(RulerNeedles, UuidsHaveTheirForm) {
  Random random(4);
  const std::regex form("[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}");
  for (int i = 0; i < 50; ++i) EXPECT_TRUE(std::regex_match(uuid(random), form));
}

TEST(RulerVariables, AChainOfFourHopsBehindAnExample) {
  const RulerSample sample = fill("vt", 40);
  ASSERT_EQ(sample.answers.size(), kVariableHops + 1);
  EXPECT_EQ(count(sample.context, "LET "), 2 * (kVariableHops + 1));
  EXPECT_EQ(count(sample.context, "Question: "), 1u) << "of the example";
  const std::string text = sample.context.substr(sample.context.rfind("Follow the"));
  std::smatch value;
  ASSERT_TRUE(std::regex_search(sample.question, value, std::regex("value ([0-9]{5}),")));
  std::string source = value[1];
  size_t last = 0;
  for (const std::string& name : sample.answers) {
    const size_t at = text.find(concat({"LET ", name, " = ", source, ".\n"}));
    ASSERT_NE(at, std::string::npos) << name;
    EXPECT_GE(at, last) << "statements stand in their order";
    last = at;
    source = name;
  }
}

// Words of a numbered list, checked for their numbers.
std::map<std::string, size_t> listed(const std::string& context) {
  std::map<std::string, size_t> counts;
  const std::string list = context.substr(context.rfind("in mind.\n") + 9);
  const std::regex form("([0-9]+)\\. ([a-z]+)");
  size_t n = 0;
  for (std::sregex_iterator at(list.begin(), list.end(), form), end; at != end; ++at) {
    EXPECT_EQ((*at)[1], std::to_string(++n));
    ++counts[(*at)[2]];
  }
  return counts;
}

TEST(RulerCommonWords, StandExactlySoOften) {
  struct CommonWords {
    size_t length, n_words, common, rare;
  };
  for (const CommonWords& c :
       {CommonWords{8192, 100, 30, 3}, CommonWords{4096, 600, 30, 3}, CommonWords{4095, 50, 6, 1}}) {
    const RulerSample sample = fill("cwe", c.n_words, c.length);
    const auto counts = listed(sample.context);
    EXPECT_EQ(counts.size(), c.n_words) << "words are different, even those that the prose lacks";
    const std::set<std::string> common(sample.answers.begin(), sample.answers.end());
    EXPECT_EQ(common.size(), 10u);
    for (const auto& [word, n] : counts) EXPECT_EQ(n, common.contains(word) ? c.common : c.rare) << word;
  }
}

TEST(RulerCommonWords, TheExampleSharesNoWord) {
  const RulerSample sample = fill("cwe", 60);
  const std::string example = sample.context.substr(0, sample.context.find("Question:"));
  const auto words = word_counts(example);
  for (const std::string& answer : sample.answers) EXPECT_FALSE(words.contains(answer)) << answer;
}

TEST(RulerFrequentWords, AreTheThreeBehindTheDots) {
  for (const size_t n_draws : {100, 1000, 5000}) {
    const RulerSample sample = fill("fwe", n_draws);
    std::map<std::string, size_t> counts =
        word_counts(sample.context.substr(sample.context.find("in it. ") + 7));
    // n / (r^2 zeta(2)), rounded down.
    EXPECT_EQ(counts[std::string(kDots)], static_cast<size_t>(static_cast<double>(n_draws) * 0.60793));
    EXPECT_EQ(counts[sample.answers[0]], static_cast<size_t>(static_cast<double>(n_draws) * 0.60793 / 4));
    EXPECT_EQ(counts[sample.answers[1]], static_cast<size_t>(static_cast<double>(n_draws) * 0.60793 / 9));
    const size_t third = counts[sample.answers[2]];
    for (const auto& [word, n] : counts) {
      if (word == kDots || std::count(sample.answers.begin(), sample.answers.end(), word) > 0) continue;
      EXPECT_LT(n, third) << word;
      EXPECT_EQ(word.size(), kCodedLetters);
    }
  }
}

TEST(RulerMaterial, WordsAndSentencesOfTheProse) {
  const RulerMaterial made("The cat saw Emma's elephants; elephants saw caf\xc3\xa9s. Never again!");
  EXPECT_EQ(made.words, (std::vector<std::string>{"elephants", "again"}));
  EXPECT_EQ(made.sentences.size(), 2u);
  EXPECT_THROW(RulerMaterial(" \n"), Error);
}

}  // namespace
}  // namespace quire
