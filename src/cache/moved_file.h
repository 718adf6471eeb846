// What a file says of rows that have moved or left, u32 numbers.
//
// Of a recipe that drops rows: how many tokens came in steps of one; how many rows there are, the same in all
// layers and heads; and for each KV head of each layer without a window, in the order in which its rows lie,
//
//   positions [rows] | the mass of each as f32 [rows]
//
// Of one whose reserve is brought together: the positions of the open rows, in the order in which they lie in
// every layer. What else such a reserve knows hangs on the number of tokens alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/section_file.h"
#include "cache/cache.h"

namespace quire {

// Of a saved sequence: positions are u32, and further tokens may come.
constexpr size_t kMostSavedTokens = size_t{1} << 31;

// Whether the caches of a recipe have such rows, and their files this section.
bool has_moved_rows(const Recipe& recipe);
// Of a cache whose recipe has.
std::vector<uint32_t> moved_values(const Cache& cache);

struct SavedMoves {
  // Throws Error for a section that contradicts itself, the recipe or the rows; n_sealed [layer].
  static SavedMoves read(const SectionFile& file, const Recipe& recipe, const Geometry& geometry,
                         size_t n_tokens, std::span<const size_t> n_sealed);
  void restore(Cache& cache) const;

  size_t n_left = 0;  // tokens that are in no page of the layers that have KV heads
  size_t n_generated = 0;
  std::vector<std::vector<HeadRows>> rows;  // [layer][kv_head]
  std::vector<uint32_t> open;               // where a reserve is brought together
};

}  // namespace quire
