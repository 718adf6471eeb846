#include "cache/geometry.h"

#include <algorithm>

#include "cache/prompt_statistics.h"
#include "policy/hot_pages.h"

namespace quire {

namespace {

LayerLayout layer_layout(const Recipe& recipe, size_t layer, size_t n_kv_heads, size_t head_dim) {
  LayerLayout layout;
  layout.open = {n_kv_heads, head_dim, recipe.key_format, recipe.value_format};
  layout.sealed = {n_kv_heads, head_dim, recipe.keys, recipe.values};
  layout.seals = recipe.seals();
  layout.sink_tokens = recipe.seals() ? recipe.sink_tokens : 0;
  layout.tail_tokens = recipe.tail_tokens;
  layout.keeps_rows = recipe.full_rows > 0;
  if (recipe.prompt_statistics) layout.first_seal_tokens = kStatisticsTokens;
  // In layers that are read whole a copy would be read like its codes.
  if (recipe.promote.given() && layer >= recipe.index->dense_layers) {
    const auto settings = HotPageSettings::of(recipe.promote, recipe.tail_tokens, recipe.sink_tokens);
    layout.copy_slots = settings.capacity_pages;
    layout.copy_tokens = settings.page_tokens;
  }
  return layout;
}

uint64_t bytes_after(const LayerLayout& layout, size_t n_tokens) {
  return layout.bytes(n_tokens, layout.sealed_pages(n_tokens));
}

// Of one step. The counterpart on counts of Store::peak_growth(), for a cache of its own.
uint64_t step_peak(const std::vector<LayerLayout>& layouts, size_t n_before, size_t n_total) {
  const bool at_once = n_total - n_before <= kSmallStep || layouts.empty() || !layouts[0].seals;
  const auto open_bytes = [&](const LayerLayout& layout) {
    return layout.bytes(n_total, layout.sealed_pages(n_before));
  };
  const auto coded_bytes = [&](const LayerLayout& layout) {
    const bool first = layout.sealed_pages(n_before) == 0 && layout.sealed_pages(n_total) > 0;
    return layout.sealed.bytes(layout.sealed_pages(n_total)) -
           layout.sealed.bytes(layout.sealed_pages(n_before)) + (first ? layout.beside_bytes() : 0) +
           layout.copy_bytes(layout.sealed_pages(n_total)) - layout.copy_bytes(layout.sealed_pages(n_before));
  };
  uint64_t held = 0;
  for (const LayerLayout& layout : layouts)
    held += at_once ? open_bytes(layout) : bytes_after(layout, n_before);
  uint64_t most = held;
  for (const LayerLayout& layout : layouts) {
    if (!at_once) held += open_bytes(layout) - bytes_after(layout, n_before);
    most = std::max(most, held + coded_bytes(layout));
    held += bytes_after(layout, n_total) - open_bytes(layout);  // may be negative: modulo 2^64
  }
  return most;
}

}  // namespace

std::vector<LayerLayout> layer_layouts(const Recipe& recipe, const Geometry& geometry) {
  std::vector<LayerLayout> all;
  for (const size_t n_kv_heads : geometry.n_kv_heads) {
    all.push_back(layer_layout(recipe, all.size(), n_kv_heads, geometry.head_dim));
  }
  return all;
}

uint64_t Geometry::token_bytes(const Recipe& recipe) const {
  uint64_t total = 0;
  for (const LayerLayout& layout : layer_layouts(recipe, *this)) {
    const uint64_t block_bytes = layout.seals ? layout.sealed.bytes(kPagesPerIndexBlock)
                                              : kPagesPerIndexBlock * layout.open.page_bytes();
    total += block_bytes / kPagesPerIndexBlock / kTokensPerPage;
  }
  return total;
}

uint64_t Geometry::cache_bytes(const Recipe& recipe, size_t n_tokens) const {
  uint64_t total = 0;
  for (const LayerLayout& layout : layer_layouts(recipe, *this)) total += bytes_after(layout, n_tokens);
  return total;
}

uint64_t Geometry::peak_bytes(const Recipe& recipe, size_t n_before, size_t n_total,
                              size_t step_tokens) const {
  const std::vector<LayerLayout> layouts = layer_layouts(recipe, *this);
  uint64_t most = cache_bytes(recipe, n_before);
  while (n_before < n_total) {
    const size_t left = n_total - n_before;
    const size_t n_new = step_tokens == 0 ? left : std::min(left, step_tokens);
    most = std::max(most, step_peak(layouts, n_before, n_before + n_new));
    n_before += n_new;
  }
  return most;
}

}  // namespace quire
