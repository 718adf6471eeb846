// Rows of sealed pages where kernels can read them: where they lie or, if that is outside, in a copy.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/memory.h"
#include "store/store.h"
#include "tier/piece_read.h"

namespace quire {

// Of one thread, which reads one KV head of a few pages at a time. What it returns is valid until load() is
// called again.
class StagedRows {
 public:
  // Rows rows[i] of page first + i of a layer, some of them sealed. Of pages without any, nothing is to be
  // read; of others, whatever else is there is no row. All pages outside are waited for together.
  void load(const LayerView& view, size_t kv_head, size_t first, std::span<const uint64_t> rows,
            PieceUse use);
  void load(const LayerView& view, size_t kv_head, size_t page, uint64_t rows, PieceUse use) {
    load(view, kv_head, page, {&rows, 1}, use);
  }

  const std::byte* keys(size_t page) const { return keys_[page - first_]; }
  const std::byte* values(size_t page) const { return keys_[page - first_] + key_bytes_; }

 private:
  size_t first_ = 0;
  size_t key_bytes_ = 0;
  std::vector<const std::byte*> keys_;  // [page - first] keys, and behind them values
  std::vector<PieceRead> reads_;
  Memory copies_;  // [page - first]
};

}  // namespace quire
