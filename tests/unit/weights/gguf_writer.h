// Builds small GGUF files in memory, well-formed or broken on purpose.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "weights/metadata.h"
#include "weights/tensor_type.h"

namespace quire::test {

using Bytes = std::vector<std::byte>;

// A growing run of little-endian values.
class ByteWriter {
 public:
  template <typename T>
  ByteWriter& put(T value) {
    static_assert(std::is_trivially_copyable_v<T>);
    const size_t begin = bytes_.size();
    bytes_.resize(begin + sizeof value);
    std::memcpy(bytes_.data() + begin, &value, sizeof value);
    return *this;
  }

  ByteWriter& put_text(std::string_view text) {
    for (const char c : text) bytes_.push_back(static_cast<std::byte>(c));
    return *this;
  }

  ByteWriter& put_string(std::string_view text) { return put<uint64_t>(text.size()).put_text(text); }

  ByteWriter& put_bytes(std::span<const std::byte> bytes) {
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
    return *this;
  }

  ByteWriter& pad_to(uint64_t multiple_bytes) {
    while (bytes_.size() % multiple_bytes != 0) bytes_.push_back(std::byte{0});
    return *this;
  }

  uint64_t size() const { return bytes_.size(); }
  const Bytes& bytes() const { return bytes_; }

 private:
  Bytes bytes_;
};

// One GGUF file. Entries and tensors are written in the order they are added; what a test wants broken it
// sets in the public fields or adds raw.
class GgufWriter {
 public:
  std::string magic = "GGUF";
  uint32_t version = 3;
  uint64_t alignment_bytes = 32;
  uint64_t n_entries = 0;  // as the header will claim them
  uint64_t n_tensors = 0;

  // An entry whose value is what `value` holds, with any type number.
  GgufWriter& add_raw(std::string_view key, uint32_t type, const ByteWriter& value) {
    entries_.put_string(key).put(type).put_bytes(value.bytes());
    ++n_entries;
    return *this;
  }

  GgufWriter& add_raw(std::string_view key, MetadataType type, const ByteWriter& value) {
    return add_raw(key, static_cast<uint32_t>(type), value);
  }

  template <typename T>
  GgufWriter& add(std::string_view key, T value) {
    return add_raw(key, type_of<T>(), ByteWriter().put(value));
  }

  GgufWriter& add(std::string_view key, const char* value) {
    return add_raw(key, MetadataType::String, ByteWriter().put_string(value));
  }

  template <typename T>
  GgufWriter& add_array(std::string_view key, const std::vector<T>& values) {
    ByteWriter body = array_header(type_of<T>(), values.size());
    for (const T value : values) body.put<T>(value);
    return add_raw(key, MetadataType::Array, body);
  }

  GgufWriter& add_array(std::string_view key, const std::vector<std::string>& values) {
    ByteWriter body = array_header(MetadataType::String, values.size());
    for (const std::string& value : values) body.put_string(value);
    return add_raw(key, MetadataType::Array, body);
  }

  static ByteWriter array_header(MetadataType element_type, uint64_t n_values) {
    return ByteWriter().put(static_cast<uint32_t>(element_type)).put(n_values);
  }

  // A tensor info with any numbers, whose data are where `offset` says.
  GgufWriter& add_info(std::string_view name, const std::vector<uint64_t>& shape, uint32_t type,
                       uint64_t offset) {
    infos_.put_string(name).put(static_cast<uint32_t>(shape.size()));
    for (const uint64_t dim : shape) infos_.put(dim);
    infos_.put(type).put(offset);
    ++n_tensors;
    return *this;
  }

  // A tensor with its data (of any size), placed after those before it.
  GgufWriter& add_tensor(std::string_view name, const std::vector<uint64_t>& shape, TensorType type,
                         const Bytes& data) {
    add_info(name, shape, static_cast<uint32_t>(type), data_.pad_to(alignment_bytes).size());
    data_.put_bytes(data);
    return *this;
  }

  Bytes build() const {
    ByteWriter file;
    file.put_text(magic).put(version).put(n_tensors).put(n_entries);
    file.put_bytes(entries_.bytes()).put_bytes(infos_.bytes());
    if (n_tensors > 0) file.pad_to(alignment_bytes).put_bytes(data_.bytes());
    return file.bytes();
  }

 private:
  template <typename T>
  static constexpr MetadataType type_of() {
    return static_cast<MetadataType>(MetadataValue(std::in_place_type<T>).index());
  }

  ByteWriter entries_;
  ByteWriter infos_;
  ByteWriter data_;
};

// n bytes that differ from each other.
inline Bytes pattern_bytes(size_t n_bytes, uint32_t seed = 1) {
  Bytes bytes(n_bytes);
  for (size_t i = 0; i < n_bytes; ++i) {
    seed = seed * 1664525u + 1013904223u;
    bytes[i] = static_cast<std::byte>(seed >> 24);
  }
  return bytes;
}

}  // namespace quire::test
