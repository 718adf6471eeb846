#include "weights/byte_cursor.h"

namespace quire {

std::string in_quotes(std::string_view text) {
  constexpr size_t kMaxShownBytes = 80;
  constexpr char kHexDigits[] = "0123456789abcdef";
  std::string shown = "'";
  for (const char c : text.substr(0, kMaxShownBytes)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte < 0x7f && c != '\'' && c != '\\') {
      shown += c;
    } else {
      shown += {'\\', 'x', kHexDigits[byte >> 4], kHexDigits[byte & 15]};
    }
  }
  if (text.size() > kMaxShownBytes) shown += "...";
  return shown + "'";
}

std::string Place::text() const {
  std::string text = kind;
  // append, not +: GCC 12 warns of an overlap that is not there (its bug 105651).
  if (total != 0)
    text.append(" ").append(std::to_string(index + 1)).append(" of ").append(std::to_string(total));
  if (!name.empty()) text.append(" (").append(in_quotes(name)).append(")");
  return text;
}

void ByteCursor::fail(const std::string& what) const { throw Error(path_ + ": " + what); }

void ByteCursor::fail_short(uint64_t n_bytes, const char* field) const {
  fail("the file is cut short or damaged: the " + std::string(field) + " of " + place.text() + " needs " +
       std::to_string(n_bytes) + (n_bytes == 1 ? " byte" : " bytes") + " at byte " +
       std::to_string(position_) + ", but the file ends at byte " + std::to_string(bytes_.size()));
}

}  // namespace quire
