#include "study/ruler_generate.h"

#include <algorithm>
#include <unordered_set>

#include "base/error.h"
#include "study/chance.h"
#include "study/sentences.h"

namespace quire {
namespace {

constexpr size_t kShortestWord = 4;
constexpr size_t kLongestWord = 12;
// Fewer draws than this give some of the words asked for the same count.
constexpr size_t kFewestFrequentWords = 100;

bool is_small(char c) { return c >= 'a' && c <= 'z'; }
bool is_letter(char c) {
  return is_small(c) || (c >= 'A' && c <= 'Z') || static_cast<unsigned char>(c) >= 0x80;
}

std::vector<std::string> distinct_words(std::string_view prose) {
  std::vector<std::string> words;
  std::unordered_set<std::string_view> seen;
  for (size_t i = 0; i < prose.size();) {
    const size_t first = i;
    while (i < prose.size() && is_letter(prose[i])) ++i;
    const std::string_view word = prose.substr(first, i - first);
    if (word.size() >= kShortestWord && word.size() <= kLongestWord &&
        std::all_of(word.begin(), word.end(), is_small) && seen.insert(word).second) {
      words.emplace_back(word);
    }
    if (i == first) ++i;
  }
  return words;
}

size_t prompt_tokens(const RulerSample& sample, const TokenCount& count) {
  return count(sample.context + sample.question + sample.answer_prefix);
}

}  // namespace

RulerMaterial::RulerMaterial(std::string_view prose)
    : sentences(split_sentences(prose)), words(distinct_words(prose)) {
  if (sentences.empty()) throw Error("the text is empty");
}

std::string_view noise_line() {
  return "The stones are wet. The road is long. The night is near. Someone walks on. Someone turns back.";
}

size_t min_hay(const RulerTask& task) {
  switch (task.kind) {
    case RulerKind::kNeedle: return task.needle.n_keys * task.needle.n_values;
    case RulerKind::kVariables: return kVariableHops + 1;
    case RulerKind::kCommonWords: return kCommonWords + 1;
    case RulerKind::kFrequentWords: break;
  }
  return kFewestFrequentWords;
}

RulerSample fill_ruler_sample(const RulerTask& task, const RulerMaterial& material, size_t length_tokens,
                              uint64_t seed, size_t n_hay) {
  QUIRE_CHECK(n_hay >= min_hay(task));
  Random random(seed);
  RulerSample sample;
  switch (task.kind) {
    case RulerKind::kNeedle: sample = make_needles(task.needle, material, random, n_hay); break;
    case RulerKind::kVariables: sample = make_variables(length_tokens, random, n_hay); break;
    case RulerKind::kCommonWords: sample = make_common_words(material, length_tokens, random, n_hay); break;
    case RulerKind::kFrequentWords: sample = make_frequent_words(length_tokens, random, n_hay); break;
  }
  sample.task = &task;
  return sample;
}

RulerSample make_ruler_sample(const RulerTask& task, const RulerMaterial& material, size_t length_tokens,
                              uint64_t seed, const TokenCount& count) {
  const auto n_tokens = [&](size_t n_hay) {
    return prompt_tokens(fill_ruler_sample(task, material, length_tokens, seed, n_hay), count) +
           task.max_new_tokens;
  };
  size_t fits = min_hay(task);
  if (const size_t n_least = n_tokens(fits); n_least > length_tokens) {
    throw Error("the task " + std::string(task.name) + " needs at least " + std::to_string(n_least) +
                " tokens with its answer, and a length of " + std::to_string(length_tokens) +
                " is asked for");
  }
  // The count grows with the hay but for small jumps, so that what the search ends on fits.
  size_t fails = 2 * fits;
  while (n_tokens(fails) <= length_tokens) {
    fits = fails;
    fails *= 2;
  }
  while (fits + 1 < fails) {
    const size_t middle = fits + (fails - fits) / 2;
    (n_tokens(middle) <= length_tokens ? fits : fails) = middle;
  }
  return fill_ruler_sample(task, material, length_tokens, seed, fits);
}

}  // namespace quire
