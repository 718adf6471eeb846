// A sealed page whose rows lie outside the memory of the cache.
#pragma once

#include <cstdint>
#include <memory>

#include "tier/piece_layout.h"

namespace quire {

class Tier;

// Where its rows are. Whoever holds a reference keeps them there; the last one gives the room back. The tier
// outlives it.
struct OutsidePage {
  static constexpr uint64_t kNowhere = ~uint64_t{0};

  OutsidePage(Tier& tier_in, const PieceLayout& layout_in) : tier(&tier_in), layout(layout_in) {}
  OutsidePage(const OutsidePage&) = delete;
  OutsidePage& operator=(const OutsidePage&) = delete;
  ~OutsidePage();

  Tier* tier;
  PieceLayout layout;
  uint64_t offset = kNowhere;  // in the slab
  uint64_t number = 0;         // of all pages that the tier ever had
};
using OutsidePageRef = std::shared_ptr<const OutsidePage>;

}  // namespace quire
