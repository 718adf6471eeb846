// Files made of named sections under one checksum: a section can be added without a new version of the file,
// and one that a reader must understand is refused by its name where it is not known.
//
//   | magic, 8 bytes | version u32 | 0 u32 | size of the file u64 |
//   | name, 16 bytes | flags u32 | 0 u32 | length u64 | its bytes | 0 to a multiple of 8 |   each section
//   | checksum u64 |
//
// little-endian; flag 1: who does not know the section must not use the file. A name is of a-z, 0-9, - and _,
// with zeros behind. The checksum is XXH3 (64 bits) of everything before it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/error.h"

namespace quire {

using ByteSink = std::function<void(std::span<const std::byte>)>;

// A section to be written. `write` hands exactly n_bytes to the sink, in pieces of any size, so that large
// ones need not stand in memory a second time.
struct Section {
  std::string name;  // 1 to 16 characters
  bool mandatory = true;
  uint64_t n_bytes = 0;
  std::function<void(const ByteSink&)> write;
};

// A section of a few bytes.
Section small_section(std::string name, std::vector<std::byte> bytes, bool mandatory = true);
template <typename T>
Section value_section(std::string name, std::span<const T> values, bool mandatory = true) {
  const auto bytes = std::as_bytes(values);
  return small_section(std::move(name), {bytes.begin(), bytes.end()}, mandatory);
}

// What tells one kind of file from others.
struct SectionFileKind {
  std::string_view magic;  // 8 bytes
  uint32_t version = 1;
  std::string_view noun;  // for messages: "saved cache"
};

void write_sections(const SectionFileKind& kind, std::span<const Section> sections, const ByteSink& sink);
// 64 bits of XXH3.
uint64_t checksum_of(std::span<const std::byte> bytes);

// XXH3 of bytes that come in pieces.
class Checksum {
 public:
  Checksum();
  ~Checksum();
  void add(std::span<const std::byte> bytes);
  uint64_t value() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// The sections of bytes that somebody keeps. Nothing is copied: memory needed does not depend on what counts
// in the file claim.
class SectionFile {
 public:
  // Throws Error "NAME: ..." for what is no whole, undamaged file of this kind. `name` is for messages.
  // `done` is told of every piece of the bytes that was read for the checksum, and may give its memory back.
  SectionFile(std::span<const std::byte> bytes, std::string name, const SectionFileKind& kind,
              const ByteSink& done = {});

  const std::string& name() const { return name_; }
  // Refuses a mandatory section that is not among these.
  void check_known(std::span<const std::string_view> known) const;

  std::optional<std::span<const std::byte>> find(std::string_view section) const;
  // Throws Error where it is missing.
  std::span<const std::byte> get(std::string_view section) const;
  std::string get_text(std::string_view section) const;
  // Throws Error where the section is no whole number of values.
  template <typename T>
  std::vector<T> get_values(std::string_view section) const {
    static_assert(std::is_trivially_copyable_v<T>);
    const std::span<const std::byte> bytes = get(section);
    if (bytes.size() % sizeof(T) != 0) fail_section(section, "its length is wrong");
    std::vector<T> values(bytes.size() / sizeof(T));
    if (!bytes.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }

  // Throws Error "NAME: `what`".
  [[noreturn]] void fail(const std::string& what) const;
  // The same about one section, which makes the file a damaged one.
  [[noreturn]] void fail_section(std::string_view section, const std::string& what) const;

 private:
  struct Entry {
    std::string_view name;
    bool mandatory;
    std::span<const std::byte> bytes;
  };

  void check_whole(std::span<const std::byte> bytes, const SectionFileKind& kind, const ByteSink& done) const;
  void read_sections(std::span<const std::byte> bytes);

  std::string name_;
  std::string noun_;
  std::vector<Entry> entries_;
};

}  // namespace quire
