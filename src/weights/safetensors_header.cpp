#include "weights/safetensors_header.h"

#include <utility>

#include "base/error.h"
#include "weights/byte_cursor.h"

namespace quire {
namespace {

constexpr std::string_view kMetadata = "__metadata__";

void append_utf8(uint32_t code, std::string& out) {
  const auto tail = [&](int shift) { out += static_cast<char>(0x80 | ((code >> shift) & 0x3f)); };
  if (code < 0x80) {
    out += static_cast<char>(code);
  } else if (code < 0x800) {
    out += static_cast<char>(0xc0 | (code >> 6));
    tail(0);
  } else if (code < 0x10000) {
    out += static_cast<char>(0xe0 | (code >> 12));
    tail(6);
    tail(0);
  } else {
    out += static_cast<char>(0xf0 | (code >> 18));
    tail(12);
    tail(6);
    tail(0);
  }
}

class Parser {
 public:
  Parser(std::string_view text, const std::string& path) : text_(text), path_(path) {}

  SafetensorsHeader parse() {
    SafetensorsHeader header;
    bool has_metadata = false;
    object([&](std::string key) {
      if (key != kMetadata) {
        header.tensors.push_back(tensor(std::move(key)));
        return;
      }
      if (std::exchange(has_metadata, true)) fail("__metadata__ stands there twice");
      metadata(header.metadata);
    });
    skip_blanks();
    if (at_ != text_.size()) fail("there is something behind its end");
    return header;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw Error(path_ + ": the safetensors header is wrong at byte " + std::to_string(at_) + ": " + what);
  }

  void skip_blanks() {
    while (at_ < text_.size() && std::string_view(" \t\r\n").find(text_[at_]) != std::string_view::npos)
      ++at_;
  }

  bool take(char wanted) {
    skip_blanks();
    if (at_ == text_.size() || text_[at_] != wanted) return false;
    ++at_;
    return true;
  }

  void expect(char wanted) {
    if (!take(wanted)) fail(std::string("'") + wanted + "' is wanted");
  }

  char next() {
    if (at_ == text_.size()) fail("it ends inside a string");
    return text_[at_++];
  }

  uint32_t hex4() {
    uint32_t code = 0;
    for (int i = 0; i < 4; ++i) {
      const char c = next();
      uint32_t digit = 0;
      if (c >= '0' && c <= '9') {
        digit = static_cast<uint32_t>(c - '0');
      } else if (c >= 'a' && c <= 'f') {
        digit = static_cast<uint32_t>(c - 'a') + 10;
      } else if (c >= 'A' && c <= 'F') {
        digit = static_cast<uint32_t>(c - 'A') + 10;
      } else {
        fail("\\u wants four hexadecimal digits");
      }
      code = code * 16 + digit;
    }
    return code;
  }

  void escape(std::string& out) {
    static constexpr std::string_view kFrom = "\"\\/bfnrt";
    static constexpr std::string_view kTo = "\"\\/\b\f\n\r\t";
    const char c = next();
    if (const size_t i = kFrom.find(c); i != std::string_view::npos) {
      out += kTo[i];
      return;
    }
    if (c != 'u') fail("an unknown escape");
    uint32_t code = hex4();
    if (code >= 0xdc00 && code < 0xe000) fail("half of a surrogate pair");
    if (code >= 0xd800 && code < 0xdc00) {  // the first of a pair
      if (next() != '\\' || next() != 'u') fail("half of a surrogate pair");
      const uint32_t low = hex4();
      if (low < 0xdc00 || low >= 0xe000) fail("half of a surrogate pair");
      code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
    }
    append_utf8(code, out);
  }

  std::string string() {
    if (!take('"')) fail("a string is wanted");
    std::string out;
    while (true) {
      const char c = next();
      if (c == '"') return out;
      if (static_cast<unsigned char>(c) < 0x20) fail("a control character inside a string");
      if (c == '\\') {
        escape(out);
      } else {
        out += c;
      }
    }
  }

  uint64_t number() {
    skip_blanks();
    if (at_ < text_.size() && text_[at_] == '-') fail("a negative number");
    const size_t begin = at_;
    uint64_t value = 0;
    while (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9') {
      const auto digit = static_cast<uint64_t>(text_[at_++] - '0');
      if (__builtin_mul_overflow(value, uint64_t{10}, &value) ||
          __builtin_add_overflow(value, digit, &value)) {
        fail("a number that does not fit 64 bits");
      }
    }
    if (at_ == begin || (at_ - begin > 1 && text_[begin] == '0')) fail("a whole number is wanted");
    return value;
  }

  template <typename Member>
  void object(const Member& member) {
    expect('{');
    if (take('}')) return;
    do {
      std::string key = string();
      expect(':');
      member(std::move(key));
    } while (take(','));
    expect('}');
  }

  std::vector<uint64_t> numbers() {
    std::vector<uint64_t> values;
    expect('[');
    if (take(']')) return values;
    do {
      values.push_back(number());
    } while (take(','));
    expect(']');
    return values;
  }

  void metadata(SafetensorsMetadata& metadata) {
    object([&](std::string key) {
      std::string text = string();
      if (!metadata.emplace(key, std::move(text)).second) fail(in_quotes(key) + " stands there twice");
    });
  }

  SafetensorsEntry tensor(std::string name) {
    SafetensorsEntry entry;
    bool has_dtype = false, has_shape = false, has_offsets = false;
    object([&](const std::string& key) {
      bool* seen = key == "dtype" ? &has_dtype : key == "shape" ? &has_shape : &has_offsets;
      if (key != "dtype" && key != "shape" && key != "data_offsets") {
        fail("tensor " + in_quotes(name) + " has the unknown field " + in_quotes(key));
      }
      if (std::exchange(*seen, true)) fail(key + " of tensor " + in_quotes(name) + " stands there twice");
      if (key == "dtype") {
        entry.dtype = string();
      } else if (key == "shape") {
        entry.shape = numbers();
      } else {
        const std::vector<uint64_t> offsets = numbers();
        if (offsets.size() != 2) fail("data_offsets of tensor " + in_quotes(name) + " are not two numbers");
        entry.begin = offsets[0];
        entry.end = offsets[1];
      }
    });
    if (!has_dtype || !has_shape || !has_offsets) {
      fail("tensor " + in_quotes(name) + " lacks its dtype, shape or data_offsets");
    }
    entry.name = std::move(name);
    return entry;
  }

  std::string_view text_;
  const std::string& path_;
  size_t at_ = 0;
};

}  // namespace

SafetensorsHeader parse_safetensors_header(std::string_view text, const std::string& path) {
  return Parser(text, path).parse();
}

}  // namespace quire
