#include "format/side_format.h"

#include "format/code_lookup.h"

namespace quire {

size_t key_page_bytes(const SideFormat& format, size_t head_dim) {
  if (!format.coded) return row_bytes(format.rows, kPageRows * head_dim);
  return static_cast<size_t>(key_page_bytes(format.code, static_cast<int>(head_dim)));
}

size_t index_page_bytes(const SideFormat& format, size_t head_dim) {
  if (!format.coded) return 0;
  return static_cast<size_t>(index_page_bytes(format.code, static_cast<int>(head_dim)));
}

size_t value_page_bytes(const SideFormat& format, size_t head_dim) {
  if (!format.coded) return row_bytes(format.rows, kPageRows * head_dim);
  return static_cast<size_t>(value_page_bytes(format.code, static_cast<int>(head_dim)));
}

std::optional<SideFormat> side_format_by_name(std::string_view name) {
  if (const auto rows = format_by_name(name)) return SideFormat::exact(*rows);
  if (const auto code = code_by_name(name)) return SideFormat::of(*code);
  return std::nullopt;
}

}  // namespace quire
