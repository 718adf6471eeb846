// Turns the bytes of tokens, which may end inside a character, into whole UTF-8 characters to show.
#pragma once

#include <string>
#include <string_view>

namespace quire {

// The concatenation of everything returned depends on the bytes alone, not on how they were cut, and is
// always valid UTF-8. Invalid bytes become U+FFFD as soon as they are known invalid, one for each maximal
// part of a character (the practice of the Unicode Standard, chapter 3, and of Python's "replace").
class Utf8Stream {
 public:
  // Whole characters completed by `bytes`; an incomplete tail of at most 3 bytes is held back.
  std::string push(std::string_view bytes);

  // Ends the stream: U+FFFD if something is still held back, else nothing. The stream can be used anew.
  std::string flush();

 private:
  std::string held_;
};

}  // namespace quire
