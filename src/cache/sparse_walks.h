// How far each KV head is on its way through the steps of a decoded token's attention by an index.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>

#include "attention/sparse_head.h"
#include "base/phased_work.h"
#include "cache/cache.h"

namespace quire {

struct Cache::SparseWalks {
  struct Walk {
    PhasedWork work;
    SparseHead* sparse = nullptr;
  };
  explicit SparseWalks(size_t n) : heads(std::make_unique<Walk[]>(n)), n_heads(n) {}

  std::unique_ptr<Walk[]> heads;  // [kv_head]
  size_t n_heads;
  std::atomic<size_t> next_alone{0};  // of the heads that one member each walks
};

}  // namespace quire
