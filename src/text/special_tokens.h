// Finds tokens that stand for a literal text (control and user-defined ones) in the input.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/vocabulary.h"

namespace quire {

// Bytes [begin, end) of a text.
struct TextPart {
  size_t begin;
  size_t end;
};

// A sorted list of texts, searched by narrowing a range one byte at a time.
class SpecialTokens {
 public:
  struct Match {
    size_t start;
    size_t size_bytes;  // with the white space that the token takes in; 0: nothing found, start is the end of
                        // the text
    int32_t id;
  };

  // Copies the text. Of `rule` the fields that say where a token is found and what it takes in count.
  void add(std::string_view text, int32_t id, const LiteralRule& rule = {});

  // Call once after the last add. Two tokens with one text, or one with none, are an Error.
  void finish();

  bool empty() const { return tokens_.empty(); }

  // The leftmost match at or after `from`, the longest of those that start there.
  Match find(std::string_view text, size_t from) const { return find_within(text, from, {0, text.size()}); }

  // The same of those whose own text lies in a part of the text; white space may be taken in beside it.
  Match find_within(std::string_view text, size_t from, TextPart part) const;

  // Id of the token that is exactly `text`.
  std::optional<int32_t> find_exact(std::string_view text) const;

 private:
  struct Token {
    std::string text;
    int32_t id;
    LiteralRule rule;
  };

  const Token* longest_at(std::string_view text, size_t start) const;

  std::vector<Token> tokens_;            // sorted by text after finish()
  std::array<bool, 256> first_bytes_{};  // bytes that begin one of them
};

}  // namespace quire
