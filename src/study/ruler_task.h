// The synthetic tasks of RULER (Hsieh et al., "RULER: What's the Real Context Size of Your Long-Context
// Language Models?", 2024, arXiv 2404.06654), those that need no text but prose. Parameters are the published
// ones (NVIDIA/RULER, scripts/synthetic.yaml and scripts/data/synthetic); all sentences are our own, so
// figures compare recipes with each other and not with published scores.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace quire {

enum class RulerKind : uint8_t { kNeedle, kVariables, kCommonWords, kFrequentWords };
enum class Hay : uint8_t { kNoise, kEssay, kNeedles };
enum class NeedleText : uint8_t { kWords, kNumbers, kUuids };

// Of needle tasks: n_keys keys with n_values values each are hidden, the values of n_queries keys asked for.
struct NeedleSetting {
  Hay hay = Hay::kNoise;
  NeedleText keys = NeedleText::kWords;
  NeedleText values = NeedleText::kNumbers;
  size_t n_keys = 1;
  size_t n_values = 1;
  size_t n_queries = 1;
};

// Of variable tracking.
constexpr size_t kVariableHops = 4;
// Of common words: so many words, each so often; others kRareRepeats times. In prompts shorter than
// kLongListTokens the numbers behind.
constexpr size_t kCommonWords = 10;
constexpr size_t kCommonRepeats = 30;
constexpr size_t kRareRepeats = 3;
constexpr size_t kLongListTokens = 4096;
constexpr size_t kShortCommonRepeats = 6;
constexpr size_t kShortRareRepeats = 1;
// Of frequent words: the exponent of Zipf's law, letters of a word, tokens of the prompt for each word of
// the vocabulary, words asked for. The most frequent of all is kDots, which is not asked for.
constexpr double kZipfExponent = 2.0;
constexpr size_t kCodedLetters = 6;
constexpr size_t kTokensPerCodedWord = 50;
constexpr size_t kFrequentWords = 3;
constexpr std::string_view kDots = "...";

struct RulerTask {
  std::string_view name;
  RulerKind kind;
  size_t max_new_tokens;
  NeedleSetting needle = {};
};

// All eleven, in the order of the paper's tables.
std::span<const RulerTask> ruler_tasks();
// Throws Error, which names all, when there is none.
const RulerTask& ruler_task(std::string_view name);

// One prompt: context, question and the beginning of the answer, which the model is to go on with.
struct RulerSample {
  const RulerTask* task = nullptr;
  std::string context;
  std::string question;
  std::string answer_prefix;
  std::vector<std::string> answers;  // each is to be found in what the model says
  std::string answer;                // how an answer that is right goes on from the prefix
};

}  // namespace quire
