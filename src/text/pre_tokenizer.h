// Splits text into the words that BPE works on. Each model family defines the split by a regular
// expression; these are scanners written by hand for them: linear in the text, without a regex engine's
// limits, and with one table of character classes for all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace quire {

// Which expression; see pre_tokenizer.cpp for each.
class PreTokenizer {
 public:
  enum class Kind : uint8_t { kGpt2, kSmolLm, kLlama3, kQwen2 };

  PreTokenizer() = default;

  // By the name in tokenizer.ggml.pre; an unknown one is an Error that lists those supported.
  explicit PreTokenizer(std::string_view name);

  // Size in bytes of the word at the start of `text`, which is not empty. The words of a text, one after
  // the other, are all of it. An invalid byte counts as one symbol character.
  size_t next_word(std::string_view text) const;

  // The model takes a word that is itself a token as that token, without merging (llama-bpe).
  bool ignores_merges() const { return kind_ == Kind::kLlama3; }

 private:
  Kind kind_ = Kind::kGpt2;
};

}  // namespace quire
