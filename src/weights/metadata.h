// The values of GGUF metadata: thirteen types, read-only, strings and arrays as views into the file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>

namespace quire {

// Numbered as in the file.
enum class MetadataType : uint32_t {
  U8 = 0,
  I8 = 1,
  U16 = 2,
  I16 = 3,
  U32 = 4,
  I32 = 5,
  F32 = 6,
  Bool = 7,
  String = 8,
  Array = 9,
  U64 = 10,
  I64 = 11,
  F64 = 12,
};

// "u8", "string", ...
const char* metadata_type_name(MetadataType type);

// An array of scalars or strings where it lies in the file, unaligned: scalars packed, each string as its
// u64 length and its bytes (checked when the file was opened). GgufFile's array getters decode it.
struct MetadataArray {
  MetadataType element_type;
  uint64_t n_values;
  const std::byte* data;
  uint64_t size_bytes;
};

// The index of an alternative is its MetadataType.
using MetadataValue = std::variant<uint8_t, int8_t, uint16_t, int16_t, uint32_t, int32_t, float, bool,
                                   std::string_view, MetadataArray, uint64_t, int64_t, double>;

inline MetadataType metadata_type(const MetadataValue& value) {
  return static_cast<MetadataType>(value.index());
}

// The type in words for messages: "u32", "array of string".
std::string metadata_value_type_name(const MetadataValue& value);

struct MetadataEntry {
  std::string_view key;
  MetadataValue value;
};

}  // namespace quire
