// Sealed pages on their way to a tier. Internal to the room.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "tier/charged_bytes.h"
#include "tier/tier.h"

namespace quire {

// The records of a few pages, until they are written.
class OutsideWindow {
 public:
  OutsideWindow(Tier& tier, const PieceLayout& layout, size_t n_pages, MemoryAccount& account);

  // rows: of one head, as they lie in memory. By head and page, by any thread.
  void put(size_t page, size_t head, const std::byte* rows);
  // By the caller alone. What goes wrong is the tier's fault.
  std::vector<std::shared_ptr<OutsidePage>> write();

 private:
  Tier& tier_;
  PieceLayout layout_;
  size_t slab_bytes_;
  ChargedBytes records_;
  std::vector<std::shared_ptr<OutsidePage>> pages_;
};

}  // namespace quire
