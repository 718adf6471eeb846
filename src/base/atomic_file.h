// Files that are either wholly there or not at all.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace quire {

// Writes the bytes to a new file beside `path`, has them reach the disk, and renames it to `path`: a reader
// finds the old file or the new one, also after a crash. Throws Error "cannot write PATH: ..." and leaves
// what was there; refuses a path that names something else than a regular file.
void write_file_atomically(const std::string& path, std::span<const std::byte> bytes);

}  // namespace quire
