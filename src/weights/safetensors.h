// Safetensors files: named tensors and texts, read without trust and written.
//
//   | header length u64 | header, JSON | data |
//
//   header  {"__metadata__": {"key": "text", ...},
//            "name": {"dtype": "BF16", "shape": [2, 3], "data_offsets": [begin, end]}, ...}
//
// little-endian, rows last, offsets from the beginning of the data. Together the tensors are all of the data:
// nothing overlaps and nothing lies between (https://github.com/huggingface/safetensors, "Format").
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "weights/mapped_file.h"

namespace quire {

using SafetensorsMetadata = std::map<std::string, std::string, std::less<>>;

struct Safetensor {
  std::string name;
  std::string dtype;            // as in the file: "F32", "BF16", "I64", ...
  std::vector<uint64_t> shape;  // empty: one value
  uint64_t n_values = 0;
  std::span<const std::byte> data;
};

class SafetensorsFile {
 public:
  // Checks the whole header: lengths, types, shapes, byte ranges, names that occur twice. Throws Error
  // "PATH: ..." of one sentence. Memory is taken in proportion to the header, which is in the file.
  static SafetensorsFile open(const std::string& path);
  // The bytes must outlive the file; `name` stands for the path in messages.
  static SafetensorsFile from_memory(std::span<const std::byte> bytes, const std::string& name);

  const std::string& path() const { return path_; }
  const SafetensorsMetadata& metadata() const { return metadata_; }
  // In the order of their bytes.
  const std::vector<Safetensor>& tensors() const { return tensors_; }
  const Safetensor* find(std::string_view name) const;

  // Gives the bytes away, to which the data of tensors taken before go on pointing.
  MappedFile take_mapping() && { return std::move(file_); }

  // The values of a tensor of F32, F16 or BF16 that must have this shape. Throws Error.
  std::vector<float> read(std::string_view name, std::span<const uint64_t> shape) const;

 private:
  SafetensorsFile(MappedFile file, std::string path);

  MappedFile file_;
  std::string path_;
  SafetensorsMetadata metadata_;
  std::vector<Safetensor> tensors_;
  std::map<std::string, size_t, std::less<>> by_name_;
};

enum class SafetensorsType : uint8_t { kF32, kF16, kBF16 };

// Builds a file in memory. The same calls give the same bytes.
class SafetensorsWriter {
 public:
  // A name given twice, values that do not fill the shape: bugs of the caller.
  void add_text(const std::string& key, const std::string& text);
  void add(const std::string& name, std::vector<uint64_t> shape, std::span<const float> values,
           SafetensorsType type);

  std::vector<std::byte> bytes() const;

 private:
  struct Entry {
    std::vector<uint64_t> shape;
    SafetensorsType type;
    size_t begin, end;
  };
  SafetensorsMetadata metadata_;
  std::map<std::string, Entry> entries_;
  std::vector<std::byte> data_;
};

}  // namespace quire
