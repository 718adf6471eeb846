#include "weights/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstring>
#include <utility>

#include "base/checked.h"
#include "base/error.h"
#include "base/half.h"
#include "weights/byte_cursor.h"
#include "weights/safetensors_header.h"

namespace quire {
namespace {

static_assert(std::endian::native == std::endian::little, "values lie in the file as they lie in memory");

constexpr size_t kLengthBytes = sizeof(uint64_t);

uint64_t bits_of(std::string_view dtype) {
  struct Type {
    std::string_view name;
    uint64_t n_bits;
  };
  static constexpr Type kTypes[] = {
      {"BOOL", 8}, {"U8", 8},   {"I8", 8},   {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8},
      {"I16", 16}, {"U16", 16}, {"F16", 16}, {"BF16", 16},   {"I32", 32},    {"U32", 32},
      {"F32", 32}, {"F64", 64}, {"I64", 64}, {"U64", 64},    {"C64", 64},
  };
  for (const Type& type : kTypes) {
    if (type.name == dtype) return type.n_bits;
  }
  return 0;
}

std::string text_of(std::span<const uint64_t> shape) {
  std::string text = "[";
  for (const uint64_t n : shape) {
    if (text.size() > 1) text += ", ";
    text += std::to_string(n);
  }
  return text + "]";
}

// For a sentence: a hostile file may have any number of dimensions.
std::string shown(std::span<const uint64_t> shape) {
  constexpr size_t kMostShown = 8;
  if (shape.size() <= kMostShown) return text_of(shape);
  return std::string("of ").append(std::to_string(shape.size())).append(" dimensions");
}

// Sentences about one file.
class Checker {
 public:
  Checker(const std::string& path, std::span<const std::byte> data) : path_(path), data_(data) {}

  [[noreturn]] void fail(const std::string& what) const { throw Error(path_ + ": " + what); }

  Safetensor checked(const SafetensorsEntry& entry) const {
    const std::string name = in_quotes(entry.name);
    const uint64_t n_bits = bits_of(entry.dtype);
    if (n_bits == 0) fail("tensor " + name + " has the unknown type " + in_quotes(entry.dtype));
    uint64_t n_values = 1;
    uint64_t n_bytes = 0;
    try {
      for (const uint64_t n : entry.shape) n_values = checked_mul(n_values, n, "it");
      n_bytes = checked_mul(n_values, n_bits / 8, "it");
    } catch (const Error&) {
      fail("tensor " + name + " has more values than there can be");
    }
    if (entry.begin > entry.end) fail("tensor " + name + " ends before it begins");
    if (entry.end > data_.size()) {
      fail("tensor " + name + " ends at byte " + std::to_string(entry.end) + " of the data, which has " +
           std::to_string(data_.size()));
    }
    if (entry.end - entry.begin != n_bytes) {
      fail("tensor " + name + " takes " + std::to_string(n_bytes) + " bytes by its type and shape, and has " +
           std::to_string(entry.end - entry.begin));
    }
    return {entry.name, entry.dtype, entry.shape, n_values, data_.subspan(entry.begin, n_bytes)};
  }

  // Of tensors in the order of their bytes.
  void check_ranges(const std::vector<Safetensor>& tensors) const {
    const std::byte* end = data_.data();
    for (const Safetensor& tensor : tensors) {
      if (tensor.data.data() < end) {
        fail("tensor " + in_quotes(tensor.name) + " overlaps the one before it");
      }
      if (tensor.data.data() > end) {
        fail("before tensor " + in_quotes(tensor.name) + " lie bytes that belong to no tensor");
      }
      end = tensor.data.data() + tensor.data.size();
    }
    if (end != data_.data() + data_.size()) fail("behind the last tensor lie bytes that belong to none");
  }

 private:
  const std::string& path_;
  std::span<const std::byte> data_;
};

void widen(const Safetensor& tensor, std::vector<float>& values) {
  const std::byte* from = tensor.data.data();
  if (tensor.dtype == "F32") {
    if (!values.empty()) std::memcpy(values.data(), from, tensor.data.size());
    return;
  }
  const bool is_f16 = tensor.dtype == "F16";
  for (size_t i = 0; i < values.size(); ++i) {
    uint16_t half = 0;
    std::memcpy(&half, from + i * sizeof half, sizeof half);
    values[i] = is_f16 ? f16_to_f32(half) : bf16_to_f32(half);
  }
}

}  // namespace

SafetensorsFile::SafetensorsFile(MappedFile file, std::string path)
    : file_(std::move(file)), path_(std::move(path)) {
  const std::span<const std::byte> bytes = file_.bytes();
  uint64_t n_header = 0;
  if (bytes.size() < kLengthBytes) throw Error(path_ + ": the safetensors file is cut short");
  std::memcpy(&n_header, bytes.data(), sizeof n_header);
  const std::string_view start(reinterpret_cast<const char*>(bytes.data()),
                               std::min<size_t>(bytes.size(), 32));
  if (start.starts_with("version https://git-lfs")) {
    throw Error(path_ + ": this is a Git LFS pointer, not the tensors; fetch the file with 'git lfs pull'");
  }
  if (n_header > bytes.size() - kLengthBytes) {
    throw Error(path_ + ": this is no safetensors file, or it is cut short: its header would have " +
                std::to_string(n_header) + " bytes");
  }
  const auto* text = reinterpret_cast<const char*>(bytes.data() + kLengthBytes);
  SafetensorsHeader header = parse_safetensors_header({text, n_header}, path_);
  metadata_ = std::move(header.metadata);
  const Checker checker(path_, bytes.subspan(kLengthBytes + n_header));
  for (const SafetensorsEntry& entry : header.tensors) tensors_.push_back(checker.checked(entry));
  std::stable_sort(tensors_.begin(), tensors_.end(), [](const Safetensor& a, const Safetensor& b) {
    return std::pair(a.data.data(), a.data.size()) < std::pair(b.data.data(), b.data.size());
  });
  checker.check_ranges(tensors_);
  for (size_t i = 0; i < tensors_.size(); ++i) {
    if (!by_name_.emplace(tensors_[i].name, i).second) {
      checker.fail("there are two tensors of the name " + in_quotes(tensors_[i].name));
    }
  }
}

SafetensorsFile SafetensorsFile::open(const std::string& path) { return {MappedFile::open(path), path}; }

SafetensorsFile SafetensorsFile::from_memory(std::span<const std::byte> bytes, const std::string& name) {
  return {MappedFile::view(bytes), name};
}

const Safetensor* SafetensorsFile::find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &tensors_[found->second];
}

std::vector<float> SafetensorsFile::read(std::string_view name, std::span<const uint64_t> shape) const {
  const Safetensor* tensor = find(name);
  if (tensor == nullptr) throw Error(path_ + ": there is no tensor " + in_quotes(name));
  if (!std::ranges::equal(tensor->shape, shape)) {
    throw Error(path_ + ": tensor " + in_quotes(name) + " has the shape " + shown(tensor->shape) + " where " +
                shown(shape) + " is wanted");
  }
  if (tensor->dtype != "F32" && tensor->dtype != "F16" && tensor->dtype != "BF16") {
    throw Error(path_ + ": tensor " + in_quotes(name) + " is of type " + tensor->dtype +
                "; F32, F16 and BF16 are read");
  }
  std::vector<float> values(tensor->n_values);
  widen(*tensor, values);
  return values;
}

namespace {

const char* name_of(SafetensorsType type) {
  switch (type) {
    case SafetensorsType::kF16: return "F16";
    case SafetensorsType::kBF16: return "BF16";
    default: return "F32";
  }
}

void put(std::vector<std::byte>& bytes, const void* from, size_t n) {
  if (n == 0) return;
  const size_t at = bytes.size();
  bytes.resize(at + n);
  std::memcpy(bytes.data() + at, from, n);
}

std::string json_string(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      char escaped[8];
      std::snprintf(escaped, sizeof escaped, "\\u%04x", static_cast<unsigned>(c));
      out += escaped;
    } else {
      out += c;
    }
  }
  return out + "\"";
}

}  // namespace

void SafetensorsWriter::add_text(const std::string& key, const std::string& text) {
  QUIRE_CHECK(metadata_.emplace(key, text).second);
}

void SafetensorsWriter::add(const std::string& name, std::vector<uint64_t> shape,
                            std::span<const float> values, SafetensorsType type) {
  uint64_t n_values = 1;
  for (const uint64_t n : shape) n_values = checked_mul(n_values, n, "a tensor");
  QUIRE_CHECK(n_values == values.size());
  const size_t begin = data_.size();
  if (type == SafetensorsType::kF32) {
    put(data_, values.data(), values.size_bytes());
  } else {
    for (const float value : values) {
      const uint16_t half = type == SafetensorsType::kF16 ? f32_to_f16(value) : f32_to_bf16(value);
      put(data_, &half, sizeof half);
    }
  }
  QUIRE_CHECK(name != "__metadata__");
  QUIRE_CHECK(entries_.emplace(name, Entry{std::move(shape), type, begin, data_.size()}).second);
}

std::vector<std::byte> SafetensorsWriter::bytes() const {
  std::string header = "{";
  if (!metadata_.empty()) {
    header += "\"__metadata__\":{";
    for (const auto& [key, text] : metadata_) {
      if (header.back() != '{') header += ',';
      header.append(json_string(key)).append(":").append(json_string(text));
    }
    header += '}';
  }
  for (const auto& [name, entry] : entries_) {
    if (header.size() > 1) header += ',';
    header.append(json_string(name)).append(":{\"dtype\":\"").append(name_of(entry.type));
    header.append("\",\"shape\":").append(text_of(entry.shape));
    header.append(",\"data_offsets\":[").append(std::to_string(entry.begin)).append(",");
    header.append(std::to_string(entry.end)).append("]}");
  }
  header += '}';
  header.append((8 - header.size() % 8) % 8, ' ');  // data begins at a multiple of 8 bytes
  std::vector<std::byte> bytes;
  const uint64_t n_header = header.size();
  put(bytes, &n_header, sizeof n_header);
  put(bytes, header.data(), header.size());
  put(bytes, data_.data(), data_.size());
  return bytes;
}

}  // namespace quire
