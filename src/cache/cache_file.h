// The sections of a file that hold a cache (base/section_file.h):
//
//   recipe       its canonical text
//   geometry     u32: the model's shape (cache/geometry_file.h)
//   calibration  u64: hash of what the recipe's frames are made of, or its selection's channels; only where
//   it
//                needs a calibration
//   rows         u64: tokens whose rows are there, then for each layer how many of its pages are coded, or of
//   a layer
//                with a window how many of its first pages have left
//   pages        layer by layer: the exact sinks, the kept rows and the exact keys, if pages are coded, then
//                the pages, as they lie in memory; of a recipe that drops rows, the sinks if some have left
//   statistics   f32: of each layer with coded pages, where the recipe has prompt statistics: key means, key
//                balances, value means, codebook (cache/prompt_statistics.h)
//   queries      f64: of each layer without coded pages, where the recipe has prompt statistics: how many
//                queries it has seen, then the sums of their squares [kv_head][head_dim]
//   kept         u32: of each layer with coded pages, where the recipe keeps rows: how many a head, then
//   their
//                positions [kv_head][n]
//   hot          u64: where the recipe promotes pages (cache/hot_file.h)
//   predicted    u64: where a predictor names rows (cache/predicted_file.h)
//   moved        u32: where the recipe drops rows or gathers a reserve of exact ones (cache/moved_file.h)
//
// Sections about the sequence stand beside these (engine/session_file.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/section_file.h"
#include "cache/cache.h"
#include "cache/hot_file.h"
#include "cache/moved_file.h"
#include "cache/predicted_file.h"

namespace quire {

inline constexpr std::string_view kCacheSections[] = {"recipe", "geometry",   "calibration", "rows",
                                                      "pages",  "statistics", "queries",     "kept",
                                                      "hot",    "moved",      "predicted"};

// Of what the recipe uses of a calibration: means and balances, or products where it selects by these.
uint64_t calibration_hash(const Calibration& calibration, const Recipe& recipe);

// They refer to the cache, which has to stay as it is until they are written.
std::vector<Section> cache_sections(const Cache& cache);

// What a file says of a cache. A view of the file's bytes; nothing of the cache's size has been allocated.
struct SavedCache {
  // Throws Error, with the file's name, for sections that contradict each other or their lengths.
  static SavedCache read(const SectionFile& file);

  Recipe recipe;
  Geometry geometry;
  std::optional<uint64_t> calibration;
  size_t n_tokens = 0;
  std::vector<size_t> n_sealed;                       // [layer] coded pages
  std::vector<size_t> left_pages;                     // [layer] of those with a window, that have left
  std::vector<LayerStatistics> statistics;            // [layer] where the recipe has them and pages are coded
  std::vector<PromptObserver> observers;              // [layer] where the recipe has them and none is
  std::vector<std::vector<uint32_t>> kept_positions;  // [layer], the same
  std::span<const std::byte> pages;
  SavedHot hot;                // where the recipe promotes pages
  SavedPrediction prediction;  // where a predictor names rows
  SavedMoves moves;            // where it moves rows or lets them go

  // Why a cache cannot take it: another recipe, shape or calibration. Empty: it can.
  std::string mismatch(const Cache& cache) const;
  // Into a cache without tokens, where nothing mismatches. Throws Error, with nothing changed, when the
  // pool's budget refuses. `done` is told of what has been copied.
  void restore(Cache& cache, const ByteSink& done = {}) const;

  // Tokens of a layer that are in none of its pages.
  size_t n_left(size_t layer) const {
    if (geometry.is_windowed(layer)) return left_pages[layer] * kTokensPerPage;
    return geometry.n_kv_heads[layer] > 0 ? moves.n_left : 0;
  }
};

}  // namespace quire
