// What of recipes and models the device can do: host logic.
#pragma once

#include <cstdint>
#include <string>

#include "cache/recipe.h"
#include "gpu/offload_plan.h"
#include "kernels/cuda/page_bounds.h"
#include "kernels/cuda/sparse_budget.h"
#include "model/config.h"
#include "store/log_reserve.h"

namespace quire::gpu {

enum class AttentionKind : uint8_t {
  kExact,   // all rows exact
  kTurbo,   // sealed pages of turbo codes, all read
  kPanels,  // sealed pages of q8, q4 or kivi, all read
  kSparse,  // sealed pages of nested codes, read through their index
  kSignVq,  // sealed pages of signvq, made of the sequence's own tokens, read through their signs
};

// Exact rows are read by the bounds of short pages.
struct QuestChoice {
  int page_tokens = 0;  // 0: they are not
  int dense_layers = 0;
  cuda::PageBudget budget = {};
};

struct DeviceRecipe {
  AttentionKind kind = AttentionKind::kExact;
  Format format = Format::kF16;  // of exact rows
  Code keys = Code::kTurbo4;     // where pages are sealed
  Code values = Code::kTurbo4;
  int key_bits = 0;  // of turbo and nested codes
  int value_bits = 0;
  int sink_tokens = 0;
  int tail_tokens = 0;
  int full_rows = 0;  // of signvq: rows of a KV head that stay exact though they are coded
  cuda::SparseBudget budget = {};
  // Given: it says which rows are coded, or leave where nothing is.
  LogReserve reserve = {};
  // Above 0: the sinks and so many of the newest tokens stay, and positions count inside the cache.
  int window_tokens = 0;
  QuestChoice quest = {};
  // Rows of sealed pages lie in memory of the host, and their index on the device.
  bool offloads = false;
  OffloadLimits limits = {};

  // Of rows between a product and their pages: 16 bits, which fp8 is exact in.
  Format prompt_format() const { return format == Format::kFP8 ? Format::kF16 : format; }
  bool seals() const { return kind != AttentionKind::kExact; }
  // Rows that a sequence has can be had back: for prompts behind them, and for caches of the CPU. Not of
  // codes that are made of the sequence's own tokens, nor where they lie outside.
  bool gives_rows() const { return kind != AttentionKind::kSignVq && !offloads; }
  bool bounds_pages() const { return quest.page_tokens > 0; }
  // Rows leave for good.
  bool drops() const { return window_tokens > 0 || (reserve.given() && !seals()); }
  // Rows of exact pages change places.
  bool moves_rows() const { return window_tokens > 0 || reserve.given(); }
};

// Throws Error of one sentence, with the recipe's text in it, for what only the CPU does.
DeviceRecipe device_recipe(const Recipe& recipe, const std::string& text);

// Throws Error of one sentence, which names the number, for a model that has sizes that the device has no
// kernels for.
void check_model(const ModelConfig& config);

}  // namespace quire::gpu
