// Makes prompts of RULER's tasks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/random.h"
#include "study/ruler_task.h"

namespace quire {

// What samples are made of.
struct RulerMaterial {
  // Throws Error when the prose has no sentence.
  explicit RulerMaterial(std::string_view prose);

  std::vector<std::string> sentences;  // of the prose, in order
  std::vector<std::string> words;      // its different words of 4 to 12 small letters, in order of appearance
};

// Tokens of a text.
using TokenCount = std::function<size_t(std::string_view)>;

// The largest prompt of the task that leaves room for the answer: context, question, prefix and
// task.max_new_tokens together have at most length_tokens, counted over the prompt as one text. The same for
// a seed, a material and a count. Throws Error when not even the smallest prompt fits.
RulerSample make_ruler_sample(const RulerTask& task, const RulerMaterial& material, size_t length_tokens,
                              uint64_t seed, const TokenCount& count);

// With so much of hay: noise lines, sentences, needles or words, as the task has it. `length_tokens` decides
// on what depends on the length of the prompt. Below min_hay() there is no sample.
RulerSample fill_ruler_sample(const RulerTask& task, const RulerMaterial& material, size_t length_tokens,
                              uint64_t seed, size_t n_hay);
size_t min_hay(const RulerTask& task);

// One for each kind of task.
RulerSample make_needles(const NeedleSetting& setting, const RulerMaterial& material, Random& random,
                         size_t n_hay);
RulerSample make_variables(size_t length_tokens, Random& random, size_t n_hay);
RulerSample make_common_words(const RulerMaterial& material, size_t length_tokens, Random& random,
                              size_t n_hay);
RulerSample make_frequent_words(size_t length_tokens, Random& random, size_t n_hay);

// The sentence that noise consists of, without end.
std::string_view noise_line();

}  // namespace quire
