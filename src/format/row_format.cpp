#include "format/row_format.h"

namespace quire {

std::optional<Format> format_by_name(std::string_view name) {
  for (const FormatInfo& entry : kFormats) {
    if (name == entry.name) return entry.format;
  }
  return std::nullopt;
}

}  // namespace quire
