// Facts planted in a text, in tokens, to an exact length.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/random.h"
#include "text/tokenizer.h"

namespace quire {

using Tokens = std::vector<int32_t>;

// A text in sentences of tokens, each with a blank before it. Sentences are encoded apart, so lengths add up
// and a planted sentence changes no token beside it.
class TokenText {
 public:
  // Throws Error when there is no sentence in it. The tokenizer outlives the text.
  TokenText(const Tokenizer& tokenizer, std::string_view text);

  size_t n_tokens() const { return n_tokens_; }
  size_t n_sentences() const { return sentences_.size(); }
  const Tokens& sentence(size_t i) const { return sentences_[i]; }
  Tokens encode(std::string_view sentence) const;
  // The last sentence from which on the text has so many tokens; n <= n_tokens().
  size_t last_start(size_t n) const;

 private:
  const Tokenizer& tokenizer_;
  std::vector<Tokens> sentences_;
  size_t n_tokens_ = 0;
};

// Before which of n_sentences each of n facts stands, ascending: one in each of n equal parts of the text, in
// the middle half of it, so that they are spread evenly and never in step.
std::vector<size_t> spread(Random& random, size_t n_sentences, size_t n);

// Exactly n_tokens tokens: sentences from `start` on with the statements among them, the last sentence cut.
// `random` spreads the statements. What the text lacks is not made up: n_tokens without the statements must
// be there behind `start`.
Tokens plant(const TokenText& text, size_t start, std::span<const Tokens> statements, size_t n_tokens,
             Random& random);

}  // namespace quire
