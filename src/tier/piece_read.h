// What a reader asks a tier for.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tier/outside_page.h"

namespace quire {

// How pieces are used, which decides how long they stay.
enum class PieceUse : uint8_t {
  kSelected,  // chosen among others: likely to be chosen again
  kSwept,     // read with all others of its layer, once a step
};

// Rows of one page and KV head that a reader needs in memory. `to` gets them where the head's rows lie in a
// sealed page: others may be there too, or whatever was there before.
struct PieceRead {
  const OutsidePageRef* page;
  size_t head;
  uint64_t rows;
  std::byte* to;
};

}  // namespace quire
