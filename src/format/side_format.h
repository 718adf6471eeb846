// The format of one side (keys or values) of sealed pages: a code, or exact rows.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "format/code_catalogue.h"
#include "format/row_format.h"

namespace quire {

struct SideFormat {
  bool coded = false;
  Format rows = Format::kF16;  // where not coded
  Code code = Code::kTurbo4;   // where coded

  static SideFormat exact(Format format) { return {false, format, Code::kTurbo4}; }
  static SideFormat of(Code code) { return {true, Format::kF16, code}; }

  bool operator==(const SideFormat& other) const {
    return coded == other.coded && (coded ? code == other.code : rows == other.rows);
  }
  const char* name() const { return coded ? info(code).name : info(rows).name; }
};

// Bytes of the keys, and of the values, of a sealed page of one KV head.
size_t key_page_bytes(const SideFormat& format, size_t head_dim);
// Of these the index, 0 where there is none.
size_t index_page_bytes(const SideFormat& format, size_t head_dim);
size_t value_page_bytes(const SideFormat& format, size_t head_dim);

// nullopt when no code and no row format has that name.
std::optional<SideFormat> side_format_by_name(std::string_view name);

}  // namespace quire
