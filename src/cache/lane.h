// What one member of the team works with inside a cache.
#pragma once

#include <vector>

#include "cache/cache.h"

namespace quire {

struct Cache::Lane {
  AttendScratch scratch;
  std::vector<float> q;       // [rows][head_dim] of the queries at hand
  std::vector<float> turned;  // the same, turned to where the sinks are
  FramedQueries framed;
  PartialState part{0, 0};
  PartialState coded{0, 0};  // of the sealed parts
  PartialState total{0, 0};
};

}  // namespace quire
