#include "study/haystack.h"

#include <algorithm>

#include "base/error.h"
#include "study/chance.h"
#include "study/sentences.h"
#include "study/words.h"

namespace quire {

TokenText::TokenText(const Tokenizer& tokenizer, std::string_view text) : tokenizer_(tokenizer) {
  for (const std::string& sentence : split_sentences(text)) {
    sentences_.push_back(encode(sentence));
    n_tokens_ += sentences_.back().size();
  }
  if (n_tokens_ == 0) throw Error("the text is empty");
}

Tokens TokenText::encode(std::string_view sentence) const {
  return tokenizer_.encode(concat({" ", sentence}), ControlTokens::kAsText);
}

size_t TokenText::last_start(size_t n) const {
  QUIRE_CHECK(n <= n_tokens_);
  size_t n_behind = 0;
  size_t start = sentences_.size();
  while (n_behind < n) n_behind += sentences_[--start].size();
  return start;
}

std::vector<size_t> spread(Random& random, size_t n_sentences, size_t n) {
  std::vector<size_t> places;
  for (size_t i = 0; i < n; ++i) {
    const double part = static_cast<double>(i) + 0.25 + 0.5 * random.uniform();
    places.push_back(static_cast<size_t>(part * static_cast<double>(n_sentences) / static_cast<double>(n)));
  }
  return places;
}

namespace {

// Sentences from `start` on that have n tokens together, the last one cut.
std::vector<Tokens> take(const TokenText& text, size_t start, size_t n) {
  std::vector<Tokens> taken;
  for (size_t i = start; n > 0; ++i) {
    QUIRE_CHECK(i < text.n_sentences());
    taken.push_back(text.sentence(i));
    if (taken.back().size() > n) taken.back().resize(n);
    n -= taken.back().size();
  }
  return taken;
}

}  // namespace

Tokens plant(const TokenText& text, size_t start, std::span<const Tokens> statements, size_t n_tokens,
             Random& random) {
  size_t n_planted = 0;
  for (const Tokens& statement : statements) n_planted += statement.size();
  QUIRE_CHECK(n_planted < n_tokens);
  const std::vector<Tokens> sentences = take(text, start, n_tokens - n_planted);
  const std::vector<size_t> places = spread(random, sentences.size(), statements.size());
  Tokens out;
  size_t next = 0;
  for (size_t i = 0; i < sentences.size(); ++i) {
    for (; next < places.size() && places[next] == i; ++next) {
      out.insert(out.end(), statements[next].begin(), statements[next].end());
    }
    out.insert(out.end(), sentences[i].begin(), sentences[i].end());
  }
  return out;
}

}  // namespace quire
