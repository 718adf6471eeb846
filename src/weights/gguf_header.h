// Writing of GGUF: metadata with memory of their own, and the bytes of a file before its tensor data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "weights/gguf.h"
#include "weights/metadata.h"

namespace quire {

// Collects entries in the order in which they are added; a key added twice is a bug of the caller. Keys and
// values are copied, and the views stay valid while `memory` lives, wherever it is moved.
class MetadataBuilder {
 public:
  template <typename T>
  void add(std::string_view key, T value) {
    static_assert(std::is_arithmetic_v<T>);
    entries.push_back({keep(key), MetadataValue(std::in_place_type<T>, value)});
  }

  void add_text(std::string_view key, std::string_view text);
  void add_texts(std::string_view key, std::span<const std::string_view> texts);

  template <typename T>
  void add_array(std::string_view key, std::span<const T> values) {
    static_assert(std::is_arithmetic_v<T> && !std::is_same_v<T, bool>);
    add_raw_array(key, metadata_type(MetadataValue(std::in_place_type<T>)), values.size(),
                  std::as_bytes(values));
  }
  void add_bools(std::string_view key, const std::vector<bool>& values);

  bool has(std::string_view key) const;

  std::vector<MetadataEntry> entries;
  std::vector<std::vector<std::byte>> memory;

 private:
  std::string_view keep(std::string_view text);
  std::span<const std::byte> keep(std::span<const std::byte> bytes);
  void add_raw_array(std::string_view key, MetadataType type, uint64_t n_values,
                     std::span<const std::byte> bytes);
};

// Magic, version 3, entries and tensor infos, padded to the alignment. The data of the tensors follow in
// their order, each beginning at the next multiple of the alignment; names, shapes, types and sizes are read.
std::vector<std::byte> gguf_header(std::span<const MetadataEntry> metadata,
                                   std::span<const TensorInfo> tensors, uint64_t alignment_bytes);

}  // namespace quire
