// The file of a slab on disk: without a name, so that nothing is left of it whatever becomes of the process.
#pragma once

#include <cstddef>
#include <string>

namespace quire {

// Owns an open file in a folder. Reads and writes go past the page cache where the file system allows it.
class SlabFile {
 public:
  // How the file is made: with no name at all where the file system can (O_TMPFILE); else with one that is
  // taken away at once.
  enum class Naming { kBest, kNamed };

  // Throws Error of one sentence that names the folder. Removes what processes that are gone have left there
  // of such names, which takes a kill in the instant between making a file and unnaming it.
  explicit SlabFile(const std::string& folder, Naming naming = Naming::kBest);
  SlabFile(SlabFile&& other) noexcept;
  SlabFile& operator=(SlabFile&& other) = delete;
  ~SlabFile();

  int descriptor() const { return descriptor_; }
  // Transfers past the page cache are multiples of it; 1: none are.
  size_t alignment() const { return alignment_; }

 private:
  int descriptor_ = -1;
  size_t alignment_ = 1;
};

// Removes quire-slab-PID-* in a folder: plain files of this user whose process is gone. How many there were.
size_t remove_dead_slabs(const std::string& folder);

}  // namespace quire
