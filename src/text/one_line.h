// Text of a file inside a message: on one line and not too long.
#pragma once

#include <string>
#include <string_view>

namespace quire {

// `text` with control characters as spaces; of more than max_bytes the start, followed by "...".
inline std::string one_line(std::string_view text, size_t max_bytes = 120) {
  std::string out(text.substr(0, max_bytes));
  for (char& c : out) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = ' ';
  }
  if (text.size() <= max_bytes) return out;
  while (!out.empty() && (static_cast<unsigned char>(out.back()) & 0xc0) == 0x80) out.pop_back();
  if (!out.empty() && static_cast<unsigned char>(out.back()) >= 0xc0) out.pop_back();
  return out.append("...");
}

}  // namespace quire
