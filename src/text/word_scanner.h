// Splits text into the words that BPE works on, as the expressions of four model families do, by scanners
// written by hand: linear in the text, without a regex engine's limits, and with one table of character
// classes for all. Other expressions go through text/expression.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace quire {

// Which expression; see word_scanner.cpp for each.
class WordScanner {
 public:
  enum class Kind : uint8_t { kGpt2, kSmolLm, kLlama3, kQwen2 };

  explicit WordScanner(Kind kind) : kind_(kind) {}

  // Size in bytes of the word at the start of `text`, which is not empty. The words of a text, one after
  // the other, are all of it. An invalid byte counts as one symbol character.
  size_t next_word(std::string_view text) const;

 private:
  Kind kind_;
};

}  // namespace quire
