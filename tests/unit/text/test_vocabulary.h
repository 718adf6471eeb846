// A small byte-level vocabulary for tests: all 256 bytes, then pieces in the byte alphabet, then merges.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/vocabulary.h"

namespace quire {

// Owns the strings that a Vocabulary views. Ids 0..255 are the bytes in order.
struct TestVocabulary {
  std::vector<std::string> tokens;
  std::vector<int32_t> types;
  std::vector<std::string> merges;
  std::string pre_tokenizer = "gpt-2";

  TestVocabulary() {
    uint32_t next = 0x100;
    for (uint32_t byte = 0; byte < 256; ++byte) {
      const bool itself = (byte > 0x20 && byte < 0x7f) || (byte > 0xa0 && byte != 0xad);
      add(letter(itself ? byte : next++));
    }
  }

  // UTF-8 of a code point below U+0800.
  static std::string letter(uint32_t c) {
    if (c < 0x80) return std::string(1, static_cast<char>(c));
    return {static_cast<char>(0xc0 | c >> 6), static_cast<char>(0x80 | (c & 0x3f))};
  }

  int32_t add(std::string text, int32_t type = kTokenNormal) {
    tokens.push_back(std::move(text));
    types.push_back(type);
    return static_cast<int32_t>(tokens.size()) - 1;
  }

  // Adds the merge and the token it makes.
  int32_t merge(const std::string& left, const std::string& right) {
    merges.push_back(left + " " + right);
    return add(left + right);
  }

  Vocabulary view() const {
    Vocabulary vocabulary;
    vocabulary.model = "gpt2";
    vocabulary.pre_tokenizer = pre_tokenizer;
    vocabulary.tokens.assign(tokens.begin(), tokens.end());
    vocabulary.merges.assign(merges.begin(), merges.end());
    vocabulary.token_types = types;
    return vocabulary;
  }
};

}  // namespace quire
