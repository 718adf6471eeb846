#include "tier/slab_space.h"

namespace quire {

std::optional<uint64_t> SlabSpace::take(uint64_t n_bytes) {
  n_bytes = rounded(n_bytes);
  std::vector<uint64_t>& free = free_[n_bytes];
  uint64_t offset = end_;
  if (!free.empty()) {
    offset = free.back();
    free.pop_back();
  } else {
    if (most_bytes_ != 0 && end_ + n_bytes > most_bytes_) return std::nullopt;
    end_ += n_bytes;
  }
  used_ += n_bytes;
  return offset;
}

void SlabSpace::give_back(uint64_t offset, uint64_t n_bytes) {
  n_bytes = rounded(n_bytes);
  used_ -= n_bytes;
  free_[n_bytes].push_back(offset);
  if (used_ > 0) return;
  free_.clear();
  end_ = 0;
}

}  // namespace quire
