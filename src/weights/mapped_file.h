// A read-only mapping of a regular file, or a view of bytes that somebody else keeps.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace quire {

// Owns the mapping (if it is one). Moving it does not move the bytes. If another process truncates the file
// while it is mapped, reading past the new end ends the program (SIGBUS); we do not guard against that.
class MappedFile {
 public:
  // Throws Error when the path is missing, unreadable or not a regular file. An empty file maps to no bytes.
  static MappedFile open(const std::string& path);

  static MappedFile view(std::span<const std::byte> bytes);

  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return bytes_; }

  // Tells the kernel that the whole pages inside `range` (a part of bytes()) are not needed soon.
  void drop_pages(std::span<const std::byte> range) const;

 private:
  MappedFile(std::span<const std::byte> bytes, bool is_mapping) : bytes_(bytes), is_mapping_(is_mapping) {}

  std::span<const std::byte> bytes_;
  bool is_mapping_ = false;
};

}  // namespace quire
