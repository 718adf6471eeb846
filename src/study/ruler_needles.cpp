// Needles in a haystack: values of keys hidden among noise, prose or other needles.
#include <algorithm>
#include <unordered_set>

#include "base/error.h"
#include "study/chance.h"
#include "study/ruler_generate.h"
#include "study/words.h"

namespace quire {
namespace {

constexpr int kNumberDigits = 7;
// Needles stand at some of so many depths of prose, evenly from its beginning to its end.
constexpr size_t kDepths = 40;

std::string_view value_noun(NeedleText values) {
  switch (values) {
    case NeedleText::kWords: return "word";
    case NeedleText::kNumbers: return "number";
    case NeedleText::kUuids: break;
  }
  return "identifier";
}

// Texts that were not given out before.
class FreshTexts {
 public:
  explicit FreshTexts(Random& random) : random_(random) {}

  std::string next(NeedleText kind) {
    std::string text = make(kind);
    // Where words run out they grow, so this ends.
    while (!used_.insert(text).second) text = kind == NeedleText::kWords ? grown(text) : make(kind);
    return text;
  }

 private:
  std::string make(NeedleText kind) {
    switch (kind) {
      case NeedleText::kWords: return compound_word(random_);
      case NeedleText::kNumbers: return decimal_number(random_, kNumberDigits);
      case NeedleText::kUuids: break;
    }
    return uuid(random_);
  }

  std::string grown(const std::string& word) { return concat({pick(random_, adjectives()), "-", word}); }

  Random& random_;
  std::unordered_set<std::string> used_;
};

std::string needle_line(NeedleText values, std::string_view key, std::string_view value) {
  return concat({"A hidden ", value_noun(values), " of ", key, " is ", value, "."});
}

// The needles in their order, each before one of `places` of the lines, ascending.
std::vector<std::string> insert_lines(const std::vector<std::string>& lines,
                                      const std::vector<std::string>& needles,
                                      const std::vector<size_t>& places) {
  std::vector<std::string> out;
  size_t next = 0;
  for (size_t i = 0; i <= lines.size(); ++i) {
    for (; next < places.size() && places[next] == i; ++next) out.push_back(needles[next]);
    if (i < lines.size()) out.push_back(lines[i]);
  }
  return out;
}

// n sentences of the prose from a place on that chance chooses; behind its end it begins anew.
std::vector<std::string> stretch(const std::vector<std::string>& sentences, Random& random, size_t n) {
  const size_t start = below(random, sentences.size());
  std::vector<std::string> out;
  for (size_t i = 0; i < n; ++i) out.push_back(sentences[(start + i) % sentences.size()]);
  return out;
}

std::string hide_in_prose(const RulerMaterial& material, const std::vector<std::string>& needles,
                          Random& random, size_t n_hay) {
  std::vector<size_t> places = choose(random, kDepths, needles.size());
  std::sort(places.begin(), places.end());
  for (size_t& place : places) place = place * n_hay / (kDepths - 1);
  return join(insert_lines(stretch(material.sentences, random, n_hay), needles, places), " ");
}

std::string hide_among(const std::vector<std::string>& lines, const std::vector<std::string>& needles,
                       Random& random) {
  std::vector<size_t> places = choose(random, lines.size(), needles.size());
  std::sort(places.begin(), places.end());
  return join(insert_lines(lines, needles, places), "\n");
}

std::string hide(const NeedleSetting& setting, const RulerMaterial& material,
                 const std::vector<std::string>& needles, FreshTexts& texts, Random& random, size_t n_hay) {
  if (setting.hay == Hay::kEssay) return hide_in_prose(material, needles, random, n_hay);
  std::vector<std::string> lines(n_hay, std::string(noise_line()));
  if (setting.hay == Hay::kNeedles) {
    for (std::string& line : lines) {
      const std::string key = texts.next(setting.keys);
      line = needle_line(setting.values, key, texts.next(setting.values));
    }
  }
  return hide_among(lines, needles, random);
}

}  // namespace

RulerSample make_needles(const NeedleSetting& setting, const RulerMaterial& material, Random& random,
                         size_t n_hay) {
  FreshTexts texts(random);
  std::vector<std::string> keys;
  std::vector<std::string> needles;
  RulerSample sample;
  // Keys are drawn at random, so the first of them are as good as any to ask for.
  for (size_t i = 0; i < setting.n_keys; ++i) {
    const std::string key = texts.next(setting.keys);
    for (size_t j = 0; j < setting.n_values; ++j) {
      const std::string value = texts.next(setting.values);
      needles.push_back(needle_line(setting.values, key, value));
      if (i < setting.n_queries) sample.answers.push_back(value);
    }
    if (i < setting.n_queries) keys.push_back(key);
  }
  shuffle(random, needles);
  const bool is_one = sample.answers.size() == 1;
  const std::string what = concat({"hidden ", value_noun(setting.values), is_one ? "" : "s"});
  sample.context = concat({"Somewhere in this text ", is_one ? "a " : "some ", what, is_one ? " is" : " are",
                           " mentioned. Read it with care and keep the ", what, " in mind.\n",
                           hide(setting, material, needles, texts, random, n_hay), "\n"});
  const std::string of = join_list(keys);
  sample.question =
      concat({"Question: Which ", what, is_one ? " is" : " are", " given for ", of, " in the text?"});
  // As needles say it, so that going on from here is copying.
  sample.answer_prefix = concat({" Answer: The ", what, " of ", of, is_one ? " is" : " are"});
  sample.answer = concat({" ", join(sample.answers, ", ")});
  return sample;
}

}  // namespace quire
