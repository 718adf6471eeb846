#include "weights/gguf.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <optional>
#include <type_traits>
#include <utility>

#include "weights/byte_cursor.h"
#include "weights/gguf_parser.h"

namespace quire {
namespace {

// The integer types of the file, bool excepted.
template <typename T>
constexpr bool kIsInteger = std::is_integral_v<T> && !std::is_same_v<T, bool>;

// The integer in `value` as a To; nullopt when it does not fit.
template <typename To, typename From>
std::optional<To> fit_integer(From value) {
  if (!std::in_range<To>(value)) return std::nullopt;
  return static_cast<To>(value);
}

// Calls visitor(T{}) with the scalar type of an array's elements; false for strings and arrays.
template <typename Visitor>
bool visit_scalar_type(MetadataType type, const Visitor& visitor) {
  switch (type) {
    case MetadataType::U8: return visitor(uint8_t{}), true;
    case MetadataType::I8: return visitor(int8_t{}), true;
    case MetadataType::U16: return visitor(uint16_t{}), true;
    case MetadataType::I16: return visitor(int16_t{}), true;
    case MetadataType::U32: return visitor(uint32_t{}), true;
    case MetadataType::I32: return visitor(int32_t{}), true;
    case MetadataType::F32: return visitor(float{}), true;
    case MetadataType::Bool: return visitor(bool{}), true;
    case MetadataType::U64: return visitor(uint64_t{}), true;
    case MetadataType::I64: return visitor(int64_t{}), true;
    case MetadataType::F64: return visitor(double{}), true;
    case MetadataType::String:
    case MetadataType::Array: return false;
  }
  return false;
}

template <typename T>
T load_element(const MetadataArray& array, uint64_t i) {
  T value;
  std::memcpy(&value, array.data + i * sizeof value, sizeof value);
  return value;
}

}  // namespace

const char* metadata_type_name(MetadataType type) {
  constexpr const char* kNames[] = {"u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
                                    "bool", "string", "array", "u64", "i64", "f64"};
  const auto number = static_cast<uint32_t>(type);
  return number < std::size(kNames) ? kNames[number] : "unknown";
}

std::string metadata_value_type_name(const MetadataValue& value) {
  const std::string name = metadata_type_name(metadata_type(value));
  const auto* array = std::get_if<MetadataArray>(&value);
  return array == nullptr ? name : name + " of " + metadata_type_name(array->element_type);
}

uint64_t TensorInfo::n_rows() const {
  uint64_t n_rows = 1;
  for (size_t i = 1; i < shape.size(); ++i) n_rows *= shape[i];
  return n_rows;
}

GgufFile::GgufFile(MappedFile file, std::string path, Split split) : path_(std::move(path)) {
  files_.push_back(std::move(file));
  GgufParser(*this).parse(split == Split::kAllowed);
  form_ = std::string("GGUF version ").append(std::to_string(version_));
}

GgufFile GgufFile::open(const std::string& path) {
  return GgufFile(MappedFile::open(path), path, Split::kRefused);
}

GgufFile GgufFile::open_part(const std::string& path) {
  return GgufFile(MappedFile::open(path), path, Split::kAllowed);
}

GgufFile GgufFile::from_memory(std::span<const std::byte> bytes, std::string name) {
  return GgufFile(MappedFile::view(bytes), std::move(name), Split::kRefused);
}

const MetadataValue* GgufFile::find(std::string_view key) const {
  const auto found = std::lower_bound(metadata_by_key_.begin(), metadata_by_key_.end(), key,
                                      [&](uint32_t i, std::string_view k) { return metadata_[i].key < k; });
  if (found == metadata_by_key_.end() || metadata_[*found].key != key) return nullptr;
  return &metadata_[*found].value;
}

const MetadataValue& GgufFile::require(std::string_view key) const {
  const MetadataValue* value = find(key);
  if (value == nullptr) throw Error(path_ + ": the metadata key " + in_quotes(key) + " is missing");
  return *value;
}

const MetadataArray& GgufFile::require_array(std::string_view key, const char* wanted) const {
  const MetadataValue& value = require(key);
  const auto* array = std::get_if<MetadataArray>(&value);
  if (array == nullptr) fail_type(key, value, wanted);
  return *array;
}

void GgufFile::fail_type(std::string_view key, const MetadataValue& found, const char* wanted) const {
  throw Error(path_ + ": the metadata key " + in_quotes(key) + " has type " +
              metadata_value_type_name(found) + ", but " + wanted + " is wanted");
}

uint64_t GgufFile::get_uint(std::string_view key) const {
  const MetadataValue& value = require(key);
  return std::visit(
      [&](const auto& held) -> uint64_t {
        if constexpr (kIsInteger<std::decay_t<decltype(held)>>) {
          if (const auto fitted = fit_integer<uint64_t>(held)) return *fitted;
          throw Error(path_ + ": the metadata key " + in_quotes(key) + " is " + std::to_string(held) + " (" +
                      metadata_value_type_name(value) + "), but it must not be negative");
        } else {
          fail_type(key, value, "an integer");
        }
      },
      value);
}

uint64_t GgufFile::get_uint_or(std::string_view key, uint64_t otherwise) const {
  return find(key) == nullptr ? otherwise : get_uint(key);
}

double GgufFile::get_float(std::string_view key) const {
  const MetadataValue& value = require(key);
  if (const auto* held = std::get_if<float>(&value)) return *held;
  if (const auto* held = std::get_if<double>(&value)) return *held;
  fail_type(key, value, "f32 or f64");
}

double GgufFile::get_float_or(std::string_view key, double otherwise) const {
  return find(key) == nullptr ? otherwise : get_float(key);
}

bool GgufFile::get_bool(std::string_view key) const {
  const MetadataValue& value = require(key);
  if (const auto* held = std::get_if<bool>(&value)) return *held;
  fail_type(key, value, "bool");
}

bool GgufFile::get_bool_or(std::string_view key, bool otherwise) const {
  return find(key) == nullptr ? otherwise : get_bool(key);
}

std::string_view GgufFile::get_string(std::string_view key) const {
  const MetadataValue& value = require(key);
  if (const auto* held = std::get_if<std::string_view>(&value)) return *held;
  fail_type(key, value, "string");
}

std::string_view GgufFile::get_string_or(std::string_view key, std::string_view otherwise) const {
  return find(key) == nullptr ? otherwise : get_string(key);
}

std::vector<std::string_view> GgufFile::get_string_array(std::string_view key) const {
  const MetadataArray& array = require_array(key, "array of string");
  if (array.element_type != MetadataType::String) fail_type(key, array, "array of string");
  std::vector<std::string_view> strings;
  strings.reserve(array.n_values);
  ByteCursor cursor({array.data, array.size_bytes}, path_);
  for (uint64_t i = 0; i < array.n_values; ++i) strings.push_back(cursor.read_string("array"));
  return strings;
}

std::vector<int64_t> GgufFile::get_int_array(std::string_view key) const {
  const char* wanted = "array of an integer type";
  const MetadataArray& array = require_array(key, wanted);
  std::vector<int64_t> values;
  const auto append_all = [&](auto zero) {
    using T = decltype(zero);
    if constexpr (kIsInteger<T>) {
      values.reserve(array.n_values);
      for (uint64_t i = 0; i < array.n_values; ++i) {
        const T element = load_element<T>(array, i);
        const auto fitted = fit_integer<int64_t>(element);
        if (!fitted) {
          throw Error(path_ + ": value " + std::to_string(i) + " of the metadata key " + in_quotes(key) +
                      " is " + std::to_string(element) + ", which does not fit in i64");
        }
        values.push_back(*fitted);
      }
    } else {
      fail_type(key, array, wanted);
    }
  };
  if (!visit_scalar_type(array.element_type, append_all)) fail_type(key, array, wanted);
  return values;
}

std::vector<float> GgufFile::get_float_array(std::string_view key) const {
  const char* wanted = "array of f32 or f64";
  const MetadataArray& array = require_array(key, wanted);
  std::vector<float> values;
  const auto append_all = [&](auto zero) {
    using T = decltype(zero);
    if constexpr (std::is_floating_point_v<T>) {
      values.reserve(array.n_values);
      for (uint64_t i = 0; i < array.n_values; ++i) {
        values.push_back(static_cast<float>(load_element<T>(array, i)));
      }
    } else {
      fail_type(key, array, wanted);
    }
  };
  if (!visit_scalar_type(array.element_type, append_all)) fail_type(key, array, wanted);
  return values;
}

std::vector<bool> GgufFile::get_bool_array(std::string_view key) const {
  const MetadataArray& array = require_array(key, "array of bool");
  if (array.element_type != MetadataType::Bool) fail_type(key, array, "array of bool");
  std::vector<bool> values;
  values.reserve(array.n_values);
  for (uint64_t i = 0; i < array.n_values; ++i) values.push_back(array.data[i] != std::byte{0});
  return values;
}

const TensorInfo* GgufFile::find_tensor(std::string_view name) const {
  const auto found = std::lower_bound(tensors_by_name_.begin(), tensors_by_name_.end(), name,
                                      [&](uint32_t i, std::string_view n) { return tensors_[i].name < n; });
  if (found == tensors_by_name_.end() || tensors_[*found].name != name) return nullptr;
  return &tensors_[*found];
}

const TensorInfo& GgufFile::tensor(std::string_view name) const {
  const TensorInfo* found = find_tensor(name);
  if (found == nullptr) throw Error(path_ + ": the tensor " + in_quotes(name) + " is missing");
  return *found;
}

}  // namespace quire
