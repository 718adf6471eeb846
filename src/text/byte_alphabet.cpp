#include "text/byte_alphabet.h"

#include <array>
#include <cstdint>

#include "text/utf8.h"

namespace quire {
namespace {

constexpr uint32_t kAlphabetEnd = 0x100 + 68;
constexpr int16_t kOutside = -1;

constexpr bool stands_for_itself(uint32_t byte) {
  return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || (byte >= 0xae && byte <= 0xff);
}

constexpr std::array<int16_t, kAlphabetEnd> make_alphabet() {
  std::array<int16_t, kAlphabetEnd> alphabet{};
  alphabet.fill(kOutside);
  uint32_t next = 0x100;
  for (uint32_t byte = 0; byte < 256; ++byte) {
    alphabet[stands_for_itself(byte) ? byte : next++] = static_cast<int16_t>(byte);
  }
  return alphabet;
}

constexpr std::array<int16_t, kAlphabetEnd> kAlphabet = make_alphabet();

}  // namespace

bool append_alphabet_bytes(std::string_view text, std::string& bytes) {
  const size_t size_before = bytes.size();
  while (!text.empty()) {
    const Utf8Char c = decode_utf8(text);
    const bool inside = c.state == Utf8Char::State::kValid && c.code_point < kAlphabetEnd &&
                        kAlphabet[c.code_point] != kOutside;
    if (!inside) {
      bytes.resize(size_before);
      return false;
    }
    bytes += static_cast<char>(kAlphabet[c.code_point]);
    text.remove_prefix(c.size_bytes);
  }
  return true;
}

}  // namespace quire
