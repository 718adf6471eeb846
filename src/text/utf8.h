// Strict UTF-8 decoding, one character at a time, shared by the splitter and the stream. Written here
// because both need to tell an invalid byte from an incomplete character, which utf8proc does not.
#pragma once

#include <cstdint>
#include <string_view>

namespace quire {

struct Utf8Char {
  enum class State : uint8_t {
    kValid,
    kInvalid,     // these bytes are no character and never will be
    kIncomplete,  // the text ends inside a character that is well formed so far
  };
  State state;
  uint8_t size_bytes;   // of the character, of its maximal invalid part, or of what is there of it
  uint32_t code_point;  // 0 unless valid
};

// The character at the start of `text`, which is not empty. Surrogates, overlong forms and values above
// U+10FFFF are invalid at the byte that makes them so.
inline Utf8Char decode_utf8(std::string_view text) {
  using State = Utf8Char::State;
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t lead = byte(0);
  if (lead < 0x80) return {State::kValid, 1, lead};
  if (lead < 0xc2 || lead > 0xf4) return {State::kInvalid, 1, 0};

  const uint8_t size_bytes = lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
  // Only the second byte has narrower bounds than 80..BF (Unicode Standard, table 3-7).
  uint8_t low = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
  uint8_t high = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
  uint32_t code_point = lead & (0x7fu >> size_bytes);
  for (uint8_t i = 1; i < size_bytes; ++i) {
    if (i == text.size()) return {State::kIncomplete, i, 0};
    if (byte(i) < low || byte(i) > high) return {State::kInvalid, i, 0};
    code_point = code_point << 6 | (byte(i) & 0x3fu);
    low = 0x80;
    high = 0xbf;
  }
  return {State::kValid, size_bytes, code_point};
}

}  // namespace quire
