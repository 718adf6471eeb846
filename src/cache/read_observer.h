// Who wants to know which rows decode steps read, such as a study of what recipes find. (A tier is told by
// Cache::look_ahead.)
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "store/selection.h"

namespace quire {

// Called on one thread of the team while a step runs; must not throw. What is handed over is valid until the
// call returns.
class ReadObserver {
 public:
  virtual ~ReadObserver() = default;
  // Rows of the layers first_layer, first_layer + 1, ... have been named before these layers run, beside
  // those that are read in any case, by where they lie. Called only in steps that name rows anew.
  virtual void named(size_t /*first_layer*/, std::span<const Selection> /*rows*/) {}
  // The tokens, in any order, whose rows a step of one token has attended to in a KV head of a layer.
  virtual void read(size_t /*layer*/, size_t /*kv_head*/, std::span<const uint32_t> /*positions*/) {}
};

}  // namespace quire
