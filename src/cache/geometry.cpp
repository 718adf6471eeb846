#include "cache/geometry.h"

#include <algorithm>

#include "attention/attend.h"
#include "cache/prompt_statistics.h"
#include "policy/digest.h"
#include "policy/hot_pages.h"
#include "policy/retention.h"

namespace quire {

namespace {

// Exact pages leave in whole runs, so that attention is split as it is where they stay.
constexpr size_t kExactSealPages = kPagesPerRun;

LayerLayout layer_layout(const Recipe& recipe, size_t layer, size_t n_kv_heads, size_t head_dim) {
  LayerLayout layout;
  const size_t digest = digest_bytes(recipe.select, layer, recipe.key_format, head_dim);
  if (digest > 0) {
    layout.clear_digest = [select = recipe.select, format = recipe.key_format, head_dim](size_t n_rows,
                                                                                         std::byte* bytes) {
      clear_digest(select, format, head_dim, n_rows, bytes);
    };
  }
  layout.open = {n_kv_heads, head_dim, recipe.key_format, recipe.value_format, digest};
  layout.sealed = {n_kv_heads, head_dim, recipe.key_side(), recipe.value_side(), digest};
  layout.sealed.outside = recipe.place.given();
  layout.sealed.by_rows = recipe.place.given() && !recipe.coded && recipe.select.given();
  layout.seals = recipe.seals();
  layout.seal_pages = recipe.coded ? 1 : kExactSealPages;
  layout.sink_tokens = recipe.coded ? recipe.sink_tokens : 0;
  layout.tail_tokens = recipe.tail_tokens;
  layout.keeps_rows = recipe.full_rows > 0;
  if (recipe.coded && recipe.keep.given()) {
    (is_partial(recipe.keep) ? layout.key_reserve : layout.reserve) =
        log_reserve(recipe.keep, recipe.sink_tokens);
  }
  if (recipe.drops()) {
    if (recipe.keep.policy == Policy::kWindow) layout.sink_tokens = recipe.sink_tokens;
    const auto retention = make_retention(recipe.keep, layout.sink_tokens);
    layout.rows_after = [retention](size_t n_rows, size_t n_new, size_t n_total) {
      return retention->rows_after({n_rows, n_new, n_total});
    };
  }
  if (recipe.prompt_statistics) layout.first_seal_tokens = kStatisticsTokens;
  // In layers that are read whole a copy would be read like its codes.
  if (recipe.promote.given() && layer >= recipe.index->dense_layers) {
    const auto settings = HotPageSettings::of(recipe.promote, recipe.tail_tokens, recipe.sink_tokens);
    layout.copy_slots = settings.capacity_pages;
    layout.copy_tokens = settings.page_tokens;
  }
  return layout;
}

// Of one layer: the tokens it has seen and the rows that lie in its pages.
struct LayerRows {
  size_t n_tokens = 0;
  size_t n_rows = 0;

  LayerRows after(const LayerLayout& layout, size_t n_new) const {
    const size_t n_total = n_tokens + n_new;
    return {n_total, layout.drops() ? layout.rows_after(n_rows, n_new, n_total) : n_rows + n_new};
  }
};

// In the pages and, where rows have left, beside them.
uint64_t bytes_of(const LayerLayout& layout, const LayerRows& rows, size_t n_sealed) {
  const bool left = layout.drops() && rows.n_rows < rows.n_tokens;
  return layout.bytes(rows.n_rows, n_sealed) + (left ? layout.beside_bytes() : 0);
}

uint64_t bytes_after(const LayerLayout& layout, const LayerRows& rows) {
  return bytes_of(layout, rows, layout.sealed_pages(rows.n_tokens));
}

// Of one step of n_new tokens. The counterpart on counts of Store::peak_growth(), for a cache of its own.
uint64_t step_peak(const std::vector<LayerLayout>& layouts, const std::vector<LayerRows>& before,
                   size_t n_new) {
  const bool at_once = n_new <= kSmallStep || layouts.empty() || !(layouts[0].seals || layouts[0].drops());
  const auto open_bytes = [&](size_t i) {
    const LayerRows open = {before[i].n_tokens, before[i].n_rows + n_new};
    return bytes_of(layouts[i], open, layouts[i].sealed_pages(before[i].n_tokens));
  };
  const auto coded_bytes = [&](size_t i) {
    const LayerLayout& layout = layouts[i];
    const LayerRows after = before[i].after(layout, n_new);
    if (layout.drops()) {
      const bool first = before[i].n_rows == before[i].n_tokens && after.n_rows < after.n_tokens;
      return uint64_t{first ? layout.beside_bytes() : 0};
    }
    const size_t n_sealed = layout.sealed_pages(before[i].n_tokens);
    const size_t n_after = layout.sealed_pages(after.n_tokens);
    return layout.sealed.bytes(n_after) - layout.sealed.bytes(n_sealed) + layout.copy_bytes(n_after) -
           layout.copy_bytes(n_sealed) + (n_after > n_sealed ? layout.exact_key_bytes(n_after) : 0) +
           (n_sealed == 0 && n_after > 0 ? layout.beside_bytes() : 0) +
           layout.window_bytes(n_after - n_sealed);
  };
  uint64_t held = 0;
  for (size_t i = 0; i < layouts.size(); ++i) {
    held += at_once ? open_bytes(i) : bytes_after(layouts[i], before[i]);
  }
  uint64_t most = held;
  for (size_t i = 0; i < layouts.size(); ++i) {
    if (!at_once) held += open_bytes(i) - bytes_after(layouts[i], before[i]);
    most = std::max(most, held + coded_bytes(i));
    held += bytes_after(layouts[i], before[i].after(layouts[i], n_new)) - open_bytes(i);  // modulo 2^64
  }
  return most;
}

// Rows of a cache that took n_tokens in one step.
std::vector<LayerRows> rows_of(const std::vector<LayerLayout>& layouts, size_t n_tokens) {
  std::vector<LayerRows> rows;
  for (const LayerLayout& layout : layouts) rows.push_back(LayerRows{}.after(layout, n_tokens));
  return rows;
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
  const std::vector<LayerLayout> layouts = layer_layouts(recipe, *this);
  const std::vector<LayerRows> rows = rows_of(layouts, n_tokens);
  uint64_t total = 0;
  for (size_t i = 0; i < layouts.size(); ++i) total += bytes_after(layouts[i], rows[i]);
  return total;
}

uint64_t Geometry::peak_bytes(const Recipe& recipe, const CacheRows& before, size_t n_total,
                              size_t step_tokens) const {
  const std::vector<LayerLayout> layouts = layer_layouts(recipe, *this);
  std::vector<LayerRows> rows(layouts.size(), {before.n_tokens, before.n_rows});
  uint64_t most = 0;
  for (size_t i = 0; i < layouts.size(); ++i) most += bytes_after(layouts[i], rows[i]);
  for (size_t n_tokens = before.n_tokens; n_tokens < n_total;) {
    const size_t left = n_total - n_tokens;
    const size_t n_new = step_tokens == 0 ? left : std::min(left, step_tokens);
    most = std::max(most, step_peak(layouts, rows, n_new));
    for (size_t i = 0; i < layouts.size(); ++i) rows[i] = rows[i].after(layouts[i], n_new);
    n_tokens += n_new;
  }
  return most;
}

}  // namespace quire
