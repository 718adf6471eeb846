// Header and metadata; the tensor infos are in gguf_tensors.cpp.
//
// Layout of a file, packed without padding up to the tensor data, all little-endian:
//   "GGUF" | version u32 | n_tensors u64 | n_entries u64
//   n_entries x { key string | type u32 | value },   string = length u64 | bytes
//   n_tensors x { name string | n_dims u32 | n_dims x u64 | type u32 | offset u64 }
//   padding to the alignment | tensor data
#include "weights/gguf_parser.h"

#include <algorithm>
#include <limits>

#include "weights/split_file.h"

namespace quire {
namespace {

constexpr std::string_view kMagic = "GGUF";
constexpr uint64_t kMaxKeyBytes = 65535;  // the specification's limit

// Smallest entry: 1-byte key (8 + 1), type, 1-byte value. Smallest info: 1-byte name (8 + 1), n_dims, one
// dim, type, offset. Counts that could not fit what follows are refused before anything is reserved.
constexpr uint64_t kMinEntryBytes = 8 + 1 + 4 + 1;
constexpr uint64_t kMinTensorInfoBytes = 8 + 1 + 4 + 8 + 4 + 8;

constexpr uint64_t kMinAlignmentBytes = 8;
constexpr uint64_t kMaxAlignmentBytes = 1 << 20;

// What a file that does not begin with "GGUF" seems to be.
std::string describe_magic(std::string_view start) {
  if (start.starts_with("version https://git-lfs")) {
    return "this is a Git LFS pointer, not the model itself; fetch the file with 'git lfs pull'";
  }
  if (start.starts_with("FUGG")) return "this is a big-endian GGUF file; only little-endian ones are read";
  for (const std::string_view old : {"lmgg", "tjgg", "fmgg", "algg"}) {
    if (start.starts_with(old)) return "this is a GGML file from before GGUF; convert it to GGUF";
  }
  return "this is not a GGUF file: it begins with " + in_quotes(start.substr(0, 4)) + " instead of 'GGUF'";
}

uint32_t swap_bytes(uint32_t value) {
  return value >> 24 | (value >> 8 & 0xff00u) | (value << 8 & 0xff0000u) | value << 24;
}

// Bytes of one value of a fixed size; 0 for strings and arrays.
uint32_t scalar_bytes(MetadataType type) {
  switch (type) {
    case MetadataType::U8:
    case MetadataType::I8:
    case MetadataType::Bool: return 1;
    case MetadataType::U16:
    case MetadataType::I16: return 2;
    case MetadataType::U32:
    case MetadataType::I32:
    case MetadataType::F32: return 4;
    case MetadataType::U64:
    case MetadataType::I64:
    case MetadataType::F64: return 8;
    case MetadataType::String:
    case MetadataType::Array: return 0;
  }
  return 0;
}

}  // namespace

void GgufParser::parse(bool may_be_part) {
  check_magic();
  read_version();
  const Counts counts = read_counts();
  read_metadata(counts.n_entries);
  file_.index_metadata();
  if (!may_be_part) check_split();
  read_alignment();
  read_tensor_infos(counts.n_tensors);
  file_.index_tensors();
  place_tensor_data();
}

void GgufParser::check_magic() {
  if (cursor_.remaining() == 0) cursor_.fail("the file is empty");
  const std::string_view start(reinterpret_cast<const char*>(cursor_.here()),
                               std::min<uint64_t>(cursor_.remaining(), 32));
  if (!start.starts_with(kMagic.substr(0, start.size()))) cursor_.fail(describe_magic(start));
  cursor_.take(kMagic.size(), "magic 'GGUF'");
}

void GgufParser::read_version() {
  const auto version = cursor_.read<uint32_t>("version");
  if (version != 0 && (version & 0xffffu) == 0) {
    cursor_.fail("this is a big-endian GGUF file (version " + std::to_string(swap_bytes(version)) +
                 " with its bytes reversed); only little-endian ones are read");
  }
  if (version != 2 && version != 3) {
    cursor_.fail("GGUF version " + std::to_string(version) + " is not supported; versions 2 and 3 are read");
  }
  file_.version_ = version;
}

GgufParser::Counts GgufParser::read_counts() {
  Counts counts{};
  counts.n_tensors = cursor_.read<uint64_t>("tensor count");
  counts.n_entries = cursor_.read<uint64_t>("metadata count");
  check_count(counts.n_tensors, kMinTensorInfoBytes, "tensors");
  check_count(counts.n_entries, kMinEntryBytes, "metadata entries");
  return counts;
}

void GgufParser::check_count(uint64_t count, uint64_t min_bytes_each, const char* things) const {
  const uint64_t most =
      std::min<uint64_t>(cursor_.remaining() / min_bytes_each, std::numeric_limits<uint32_t>::max());
  if (count <= most) return;
  cursor_.fail("the file is cut short or damaged: its header claims " + std::to_string(count) + " " + things +
               ", but the " + std::to_string(cursor_.remaining()) + " bytes after the header hold at most " +
               std::to_string(most));
}

void GgufParser::read_metadata(uint64_t n_entries) {
  for (uint64_t i = 0; i < n_entries; ++i) {
    cursor_.place = {"metadata entry", i, n_entries};
    const uint64_t key_offset = cursor_.position();
    const std::string_view key = cursor_.read_string("key");
    if (key.empty() || key.size() > kMaxKeyBytes) {
      cursor_.fail(cursor_.place.text() + " at byte " + std::to_string(key_offset) +
                   (key.empty() ? " has an empty key"
                                : " has a key of " + std::to_string(key.size()) + " bytes; the limit is " +
                                      std::to_string(kMaxKeyBytes)));
    }
    cursor_.place.name = key;
    file_.metadata_.push_back({key, read_value()});
  }
}

MetadataValue GgufParser::read_value() {
  const uint64_t type_offset = cursor_.position();
  const auto number = cursor_.read<uint32_t>("value type");
  switch (static_cast<MetadataType>(number)) {
    case MetadataType::U8: return cursor_.read<uint8_t>("value");
    case MetadataType::I8: return cursor_.read<int8_t>("value");
    case MetadataType::U16: return cursor_.read<uint16_t>("value");
    case MetadataType::I16: return cursor_.read<int16_t>("value");
    case MetadataType::U32: return cursor_.read<uint32_t>("value");
    case MetadataType::I32: return cursor_.read<int32_t>("value");
    case MetadataType::F32: return cursor_.read<float>("value");
    case MetadataType::Bool: return read_bool();
    case MetadataType::String: return cursor_.read_string("value");
    case MetadataType::Array: return read_array();
    case MetadataType::U64: return cursor_.read<uint64_t>("value");
    case MetadataType::I64: return cursor_.read<int64_t>("value");
    case MetadataType::F64: return cursor_.read<double>("value");
  }
  cursor_.fail(cursor_.place.text() + " has the unknown value type " + std::to_string(number) + " at byte " +
               std::to_string(type_offset));
}

MetadataArray GgufParser::read_array() {
  const uint64_t type_offset = cursor_.position();
  const auto number = cursor_.read<uint32_t>("element type");
  const auto type = static_cast<MetadataType>(number);
  const uint32_t n_bytes_each = type == MetadataType::String ? 8 : scalar_bytes(type);  // at least
  if (n_bytes_each == 0) {
    const bool is_nested = type == MetadataType::Array;
    cursor_.fail(cursor_.place.text() + " is an array of " +
                 (is_nested ? "arrays" : "the unknown value type " + std::to_string(number)) + " at byte " +
                 std::to_string(type_offset) +
                 (is_nested ? "; arrays are not nested in any model we read" : ""));
  }
  const auto n_values = cursor_.read<uint64_t>("array length");
  if (n_values > cursor_.remaining() / n_bytes_each) {
    cursor_.fail("the file is cut short or damaged: " + cursor_.place.text() + " claims an array of " +
                 std::to_string(n_values) + " values at byte " + std::to_string(cursor_.position()) +
                 ", but only " + std::to_string(cursor_.remaining()) + " bytes follow");
  }
  const uint64_t begin = cursor_.position();
  const std::byte* data = cursor_.here();
  if (type == MetadataType::String) {
    for (uint64_t i = 0; i < n_values; ++i) cursor_.read_string("array");
  } else if (type == MetadataType::Bool) {
    for (uint64_t i = 0; i < n_values; ++i) read_bool();
  } else {
    cursor_.take(n_values * n_bytes_each, "array");
  }
  return {type, n_values, data, cursor_.position() - begin};
}

// Any other byte than 0 and 1 means that writer and reader disagree on where the value is.
bool GgufParser::read_bool() {
  const auto value = cursor_.read<uint8_t>("value");
  if (value > 1) {
    cursor_.fail(cursor_.place.text() + " holds " + std::to_string(value) + " as a bool at byte " +
                 std::to_string(cursor_.position() - 1) + "; only 0 and 1 are bools");
  }
  return value == 1;
}

void GgufParser::check_split() const {
  const uint64_t n_parts = file_.get_uint_or("split.count", 1);
  if (n_parts <= 1) return;
  cursor_.fail(describe_part(file_.get_uint_or("split.no", 0), n_parts) + ", not a whole one");
}

void GgufParser::read_alignment() {
  const std::string_view key = "general.alignment";
  const MetadataValue* value = file_.find(key);
  if (value == nullptr) return;
  if (!std::holds_alternative<uint32_t>(*value)) file_.fail_type(key, *value, "u32");
  const uint64_t alignment = std::get<uint32_t>(*value);
  if (!std::has_single_bit(alignment) || alignment < kMinAlignmentBytes || alignment > kMaxAlignmentBytes) {
    cursor_.fail("the metadata key 'general.alignment' is " + std::to_string(alignment) +
                 "; it must be a power of two from " + std::to_string(kMinAlignmentBytes) + " to " +
                 std::to_string(kMaxAlignmentBytes));
  }
  file_.alignment_bytes_ = alignment;
}

}  // namespace quire
