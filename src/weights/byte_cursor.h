// Bounds-checked reading of a GGUF file's bytes, and the wording of what goes wrong. Internal to the room.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

#include "base/error.h"

namespace quire {

static_assert(std::endian::native == std::endian::little, "GGUF values are read as they lie in the file");

// 'text' for a message: long texts cut, bytes that could break the line or the terminal as \xNN.
std::string in_quotes(std::string_view text);

// What is being read, for messages: "metadata entry 3 of 34 ('general.name')".
struct Place {
  const char* kind;  // "metadata entry", "tensor info" or "the header"
  uint64_t index = 0;
  uint64_t total = 0;  // 0: `kind` says it all
  std::string_view name = {};

  std::string text() const;
};

// Reads forward through bytes and throws Error instead of passing their end.
class ByteCursor {
 public:
  // Both must outlive the cursor; `path` is for messages.
  ByteCursor(std::span<const std::byte> bytes, const std::string& path) : bytes_(bytes), path_(path) {}

  uint64_t position() const { return position_; }
  uint64_t remaining() const { return bytes_.size() - position_; }
  const std::byte* here() const { return bytes_.data() + position_; }

  Place place{"the header"};

  // The next n_bytes; `field` names them in the Error if they are not there.
  const std::byte* take(uint64_t n_bytes, const char* field) {
    if (n_bytes > remaining()) fail_short(n_bytes, field);
    const std::byte* taken = here();
    position_ += n_bytes;
    return taken;
  }

  template <typename T>
  T read(const char* field) {
    T value;
    std::memcpy(&value, take(sizeof value, field), sizeof value);
    return value;
  }

  // A u64 length and that many bytes.
  std::string_view read_string(const char* field) {
    const auto n_bytes = read<uint64_t>(field);
    const std::byte* text = take(n_bytes, field);
    return {reinterpret_cast<const char*>(text), n_bytes};
  }

  // Throws "PATH: `what`".
  [[noreturn]] void fail(const std::string& what) const;

 private:
  [[noreturn]] void fail_short(uint64_t n_bytes, const char* field) const;

  std::span<const std::byte> bytes_;
  const std::string& path_;
  uint64_t position_ = 0;
};

}  // namespace quire
