// What one member of the team works with inside a cache.
#pragma once

#include <vector>

#include "cache/cache.h"

namespace quire {

struct Cache::Lane {
  AttendScratch scratch;
  std::vector<float> q;  // [rows][head_dim] of the queries at hand
  FramedQueries framed;
  PartialState part{0, 0};
  PartialState coded{0, 0};  // of the sealed parts
  PartialState total{0, 0};
};

inline void resize_state(PartialState& state, size_t n_rows, size_t head_dim) {
  if (state.n_rows != n_rows || state.head_dim != head_dim) state = PartialState(n_rows, head_dim);
}

}  // namespace quire
