// Files that are either wholly there or not at all.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace quire {

// A new file beside `path` that gets its name when it is complete: a reader finds the old file or the new
// one, also after a crash. Everything throws Error "cannot write PATH: ..."; without a commit() what was
// there stays and the new file is removed again. For one thread.
class AtomicFile {
 public:
  // Refuses a path that names something else than a regular file, or where none can be made.
  explicit AtomicFile(std::string path);
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  ~AtomicFile();

  // Appends.
  void write(std::span<const std::byte> bytes);
  // Has everything reach the disk, and renames the file to `path`.
  void commit();

 private:
  std::string path_;
  std::string name_;  // the new file's until it is renamed
  int fd_ = -1;
  bool renamed_ = false;
};

// The same with all bytes at once.
void write_file_atomically(const std::string& path, std::span<const std::byte> bytes);

}  // namespace quire
