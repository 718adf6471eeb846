// What `quire bench` compares: recipes, by their own text or by the names that Monarch's benchmark has for
// them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "cache/recipe.h"

namespace quire {

// The policy of mode `monarch-v3`, under the names and with the defaults of the published benchmark
// (JohannaWeb/Monarch, src/benchmark_monarch.py).
struct MonarchFlags {
  int64_t window_size = 512;
  int64_t max_hot_tokens = 768;
  int64_t page_size = 16;
  double promotion_threshold = 0.12;
  int64_t sticky_threshold = 2;
  double importance_decay = 0.92;
  int64_t initial_sticky_tokens = 16;
};

// monarch(window=...,max_hot=...,page=...,promote=...,sticky=...,decay=...,initial_sticky=...)
std::string monarch_recipe_text(const MonarchFlags& flags);

// One of the recipes side by side.
struct BenchEntry {
  std::string mode;  // `standard`, `monarch-v3`, or the recipe's own text
  Recipe recipe;
};

// Reads a list with commas between its parts, each `standard` (recipe full), `monarch-v3` (of the flags),
// `both` (the two) or recipes as Recipe::parse_list() has them. Throws Error of one sentence.
std::vector<BenchEntry> parse_bench_modes(std::string_view text, const MonarchFlags& flags);

}  // namespace quire
