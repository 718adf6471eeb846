#include "format/side_format.h"

namespace quire {

size_t key_page_bytes(const SideFormat& format, size_t head_dim) {
  if (!format.coded) return row_bytes(format.rows, kPageRows * head_dim);
  size_t n_bytes = 0;
  visit_code(format.code, [&]<class F>(F) { n_bytes = static_cast<size_t>(F::key_page_bytes(static_cast<int>(head_dim))); });
  return n_bytes;
}

size_t value_page_bytes(const SideFormat& format, size_t head_dim) {
  if (!format.coded) return row_bytes(format.rows, kPageRows * head_dim);
  size_t n_bytes = 0;
  visit_code(format.code, [&]<class F>(F) { n_bytes = static_cast<size_t>(F::value_page_bytes(static_cast<int>(head_dim))); });
  return n_bytes;
}

std::optional<SideFormat> side_format_by_name(std::string_view name) {
  if (const auto rows = format_by_name(name)) return SideFormat::exact(*rows);
  for (size_t i = 0; i < std::size(kCodes); ++i) {
    if (name == kCodes[i].name) return SideFormat::of(static_cast<Code>(i));
  }
  return std::nullopt;
}

}  // namespace quire
