// Splits text into the words that a tokenizer's model works on: one regular expression after the other, each
// on the pieces that the one before it left. Those of the most used families have scanners
// (text/word_scanner.h).
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/expression.h"
#include "text/text_rules.h"
#include "text/word_scanner.h"

namespace quire {

// Immutable, safe to use from many threads.
class PreTokenizer {
 public:
  // The whole text is one word.
  PreTokenizer() = default;

  // Throws Error for an expression that is not understood.
  explicit PreTokenizer(std::span<const SplitStep> steps);

  // Calls word(std::string_view) for every word of `text` in order. Nothing of the text is left out but what
  // a step removes. An expression that gives up on this text is an Error.
  template <typename OnWord>
  void split(std::string_view text, const OnWord& word) const {
    if (scanner_) {
      while (!text.empty()) {
        const size_t size_bytes = scanner_->next_word(text);
        word(text.substr(0, size_bytes));
        text.remove_prefix(size_bytes);
      }
    } else if (steps_.empty()) {
      if (!text.empty()) word(text);
    } else {
      for (const std::string_view piece : cut(text)) word(piece);
    }
  }

 private:
  struct Step {
    Expression expression;
    SplitBehavior behavior;
    bool inverted;
  };

  std::vector<std::string_view> cut(std::string_view text) const;

  std::optional<WordScanner> scanner_;  // in place of the steps
  std::vector<Step> steps_;
};

// GPT-2's expression, which tokenizer.json names by "use_regex" only.
extern const std::string_view kGpt2Expression;

// What a name in tokenizer.ggml.pre stands for.
struct PreTokenizerFamily {
  std::vector<SplitStep> steps = {};
  std::vector<NormalStep> normalizer = {};
  bool ignore_merges = false;  // a word that is a token is that token
  bool adds_bos = false;       // unless the file says otherwise
};

// An unknown name is an Error that lists those supported.
PreTokenizerFamily pre_tokenizer_family(std::string_view name);

// The name for these steps and this way with merges and normal forms; empty if there is none.
std::string_view pre_tokenizer_name(std::span<const SplitStep> steps, std::span<const NormalStep> normalizer,
                                    bool ignore_merges);

}  // namespace quire
