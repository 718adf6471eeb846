// How vocabularies of byte-level BPE write bytes.
#pragma once

#include <string>

namespace quire::test {

// The character that stands for a byte in GPT-2's vocabularies.
inline std::string alphabet_character(int byte, int& n_other) {
  const bool itself = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
  const int code = itself ? byte : 256 + n_other++;
  if (code < 0x80) return std::string(1, static_cast<char>(code));
  return {static_cast<char>(0xc0 | code >> 6), static_cast<char>(0x80 | (code & 0x3f))};
}

}  // namespace quire::test
