// Common and frequent words: lists in which some words stand more often than others.
#include <algorithm>
#include <cmath>
#include <unordered_set>

#include "base/error.h"
#include "study/chance.h"
#include "study/ruler_generate.h"
#include "study/words.h"

namespace quire {
namespace {

// The example before a list: so many different words, the common ones so often.
struct ExampleSetting {
  size_t n_words;
  size_t common_repeats;
  size_t rare_repeats;
};
constexpr ExampleSetting kLongExample = {40, 10, 3};
constexpr ExampleSetting kShortExample = {20, 3, 1};

constexpr size_t kMadeLetters = 7;

// n different words, of the prose as long as there are any, then made of letters.
std::vector<std::string> different_words(const RulerMaterial& material, Random& random, size_t n) {
  std::vector<std::string> words;
  for (const size_t i : choose(random, material.words.size(), std::min(n, material.words.size()))) {
    words.push_back(material.words[i]);
  }
  std::unordered_set<std::string> used(words.begin(), words.end());
  while (words.size() < n) {
    std::string word = letters(random, kMadeLetters, 'a');
    if (used.insert(word).second) words.push_back(std::move(word));
  }
  return words;
}

std::string numbered(const std::vector<std::string>& words) {
  std::string out;
  for (size_t i = 0; i < words.size(); ++i) {
    out += concat({i == 0 ? "" : " ", std::to_string(i + 1), ". ", words[i]});
  }
  return out;
}

// The first kCommonWords of the words are the common ones.
std::string list_of(const std::vector<std::string>& words, size_t common_repeats, size_t rare_repeats,
                    Random& random) {
  std::vector<std::string> list;
  for (size_t i = 0; i < words.size(); ++i) {
    list.insert(list.end(), i < kCommonWords ? common_repeats : rare_repeats, words[i]);
  }
  shuffle(random, list);
  return concat(
      {"Here is a numbered list of words, in which a few words stand far more often than the rest. Keep "
       "those "
       "in mind.\n",
       numbered(list), "\n"});
}

const std::string& common_question() {
  static const std::string text =
      concat({"Question: Which ", std::to_string(kCommonWords), " words stand most often in the list?"});
  return text;
}

const std::string& common_prefix() {
  static const std::string text =
      concat({" Answer: The ", std::to_string(kCommonWords), " words that stand most often in it are"});
  return text;
}

}  // namespace

RulerSample make_common_words(const RulerMaterial& material, size_t length_tokens, Random& random,
                              size_t n_hay) {
  const bool is_long = length_tokens >= kLongListTokens;
  const ExampleSetting& setting = is_long ? kLongExample : kShortExample;
  std::vector<std::string> words = different_words(material, random, n_hay + setting.n_words);
  const std::vector<std::string> example(words.end() - static_cast<ptrdiff_t>(setting.n_words), words.end());
  words.resize(n_hay);
  const auto common_of = [](const std::vector<std::string>& all) {
    return std::vector<std::string>(all.begin(), all.begin() + kCommonWords);
  };
  RulerSample sample;
  sample.context = concat({list_of(example, setting.common_repeats, setting.rare_repeats, random),
                           common_question(), common_prefix(), " ", numbered(common_of(example)), "\n\n",
                           list_of(words, is_long ? kCommonRepeats : kShortCommonRepeats,
                                   is_long ? kRareRepeats : kShortRareRepeats, random)});
  sample.question = common_question();
  sample.answer_prefix = common_prefix();
  sample.answers = common_of(words);
  sample.answer = concat({" ", numbered(sample.answers)});
  return sample;
}

namespace {

// Riemann's zeta at kZipfExponent = 2.
constexpr double kZeta = 1.6449340668482264;

// Rank r of the vocabulary, counted from 1, stands n_draws * r^-2 / zeta(2) times, rounded down.
std::vector<std::string> coded_list(const std::vector<std::string>& vocabulary, Random& random,
                                    size_t n_draws) {
  std::vector<std::string> list;
  for (size_t i = 0; i < vocabulary.size(); ++i) {
    const double share = std::pow(static_cast<double>(i + 1), -kZipfExponent) / kZeta;
    list.insert(list.end(), static_cast<size_t>(static_cast<double>(n_draws) * share), vocabulary[i]);
  }
  shuffle(random, list);
  return list;
}

}  // namespace

RulerSample make_frequent_words(size_t length_tokens, Random& random, size_t n_hay) {
  const size_t n_words = std::max(length_tokens / kTokensPerCodedWord, kFrequentWords + 2);
  std::vector<std::string> vocabulary = {std::string(kDots)};
  std::unordered_set<std::string> used;
  while (vocabulary.size() < n_words) {
    std::string word = letters(random, kCodedLetters, 'a');
    if (used.insert(word).second) vocabulary.push_back(std::move(word));
  }
  RulerSample sample;
  sample.context = concat({"This text is written in code words. Count how often each of them stands in it. ",
                           join(coded_list(vocabulary, random, n_hay), " "), "\n"});
  sample.question =
      "Question: Leave the dots out and explain nothing: which three code words are the most frequent in the "
      "text?";
  sample.answer_prefix = " Answer: The three most frequent code words of the text are";
  sample.answers.assign(vocabulary.begin() + 1, vocabulary.begin() + 1 + kFrequentWords);
  sample.answer = concat({" ", join(sample.answers, " ")});
  return sample;
}

}  // namespace quire
