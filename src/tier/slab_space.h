// Which parts of a slab are in use.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

namespace quire {

// Parts come in few sizes, one for each number of KV heads, so those that are free are kept by size.
class SlabSpace {
 public:
  // most_bytes 0: no limit. Parts begin and end at multiples of `alignment`.
  SlabSpace(uint64_t most_bytes, uint64_t alignment) : most_bytes_(most_bytes), alignment_(alignment) {}

  uint64_t rounded(uint64_t n_bytes) const { return (n_bytes + alignment_ - 1) / alignment_ * alignment_; }
  // The offset, or nothing where the slab would become too large.
  std::optional<uint64_t> take(uint64_t n_bytes);
  void give_back(uint64_t offset, uint64_t n_bytes);

  uint64_t most_bytes() const { return most_bytes_; }
  uint64_t used_bytes() const { return used_; }
  uint64_t end() const { return end_; }

 private:
  uint64_t most_bytes_;
  uint64_t alignment_;
  uint64_t end_ = 0;
  uint64_t used_ = 0;
  std::map<uint64_t, std::vector<uint64_t>> free_;  // by size
};

}  // namespace quire
