#include "cache/geometry.h"

#include <algorithm>
#include <string>

#include "attention/attend.h"
#include "base/error.h"
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

// Rows stay exact, in the formats of the recipe's exact ones.
LayerLayout windowed_layout(const Recipe& recipe, size_t window_tokens, size_t n_kv_heads, size_t head_dim) {
  LayerLayout layout;
  layout.open = {n_kv_heads, head_dim, recipe.key_format, recipe.value_format};
  layout.window_tokens = window_tokens;
  return layout;
}

// Of one layer: the tokens it has seen and the rows that lie in its pages.
struct LayerRows {
  size_t n_tokens = 0;
  size_t n_rows = 0;

  LayerRows after(const LayerLayout& layout, size_t n_new) const {
    const size_t n_total = n_tokens + n_new;
    if (layout.window_tokens > 0) {
      return {n_total, n_total - std::max(n_tokens - n_rows, layout.left_behind(n_total))};
    }
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

// Pages leave or get another form at the end of a step.
bool gives_back(const LayerLayout& layout) {
  return layout.seals || layout.drops() || layout.window_tokens > 0;
}

// Of one step of n_new tokens. The counterpart on counts of Store::peak_growth(), for a cache of its own.
uint64_t step_peak(const std::vector<LayerLayout>& layouts, const std::vector<LayerRows>& before,
                   size_t n_new) {
  const bool at_once = n_new <= kSmallStep || std::ranges::none_of(layouts, gives_back);
  const auto open_bytes = [&](size_t i) {
    const LayerRows open = {before[i].n_tokens, before[i].n_rows + n_new};
    return bytes_of(layouts[i], open, layouts[i].sealed_pages(before[i].n_tokens));
  };
  const auto coded_bytes = [&](size_t i) {
    const LayerLayout& layout = layouts[i];
    const LayerRows after = before[i].after(layout, n_new);
    if (layout.window_tokens > 0) return uint64_t{0};
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
std::vector<LayerRows> rows_after_one_step(const std::vector<LayerLayout>& layouts, size_t n_tokens) {
  std::vector<LayerRows> rows;
  for (const LayerLayout& layout : layouts) rows.push_back(LayerRows{}.after(layout, n_tokens));
  return rows;
}

}  // namespace

std::vector<LayerLayout> layer_layouts(const Recipe& recipe, const Geometry& geometry) {
  QUIRE_CHECK(geometry.window_tokens.empty() || geometry.window_tokens.size() == geometry.n_kv_heads.size());
  std::vector<LayerLayout> all;
  for (const size_t n_kv_heads : geometry.n_kv_heads) {
    const size_t layer = all.size();
    all.push_back(geometry.is_windowed(layer)
                      ? windowed_layout(recipe, geometry.window_tokens[layer], n_kv_heads, geometry.head_dim)
                      : layer_layout(recipe, layer, n_kv_heads, geometry.head_dim));
    all.back().score_softcap = geometry.score_softcap;
  }
  return all;
}

uint64_t Geometry::rows_of(size_t n_tokens) const {
  uint64_t n_rows = 0;
  for (size_t layer = 0; layer < n_kv_heads.size(); ++layer) {
    n_rows += n_kv_heads[layer] * (is_windowed(layer) ? std::min(n_tokens, window_tokens[layer]) : n_tokens);
  }
  return n_rows;
}

bool Geometry::has_windows() const {
  return std::ranges::any_of(window_tokens, [](size_t window) { return window > 0; });
}

size_t Geometry::first_full_layer() const {
  if (window_tokens.empty()) return 0;
  return static_cast<size_t>(std::ranges::find(window_tokens, size_t{0}) - window_tokens.begin());
}

void check_windows(const Recipe& recipe, const Geometry& geometry) {
  if (!geometry.has_windows()) return;
  const auto fail = [&](size_t layer, const std::string& what) {
    throw Error("recipe '" + recipe.text() + "': layer " + std::to_string(layer) +
                " of the model sees a window of " + std::to_string(geometry.window_tokens[layer]) +
                " tokens, " + what);
  };
  const size_t n_full = static_cast<size_t>(std::ranges::count(geometry.window_tokens, size_t{0}));
  const bool exact = !recipe.seals() && !recipe.keep.given() && !recipe.select.given();
  if (n_full == 0 && !exact) {
    fail(0,
         "as all its layers do, whose rows stay exact and in memory: nothing is left to the recipe (full, "
         "bf16 and f32 "
         "can be had)");
  }
  // Its predictor names rows of all layers behind a producer.
  if (recipe.needs_butler()) {
    const auto windowed =
        std::ranges::find_if(geometry.window_tokens, [](size_t window) { return window > 0; });
    fail(static_cast<size_t>(windowed - geometry.window_tokens.begin()),
         "and predictors name rows of layers that see every token");
  }
}

uint64_t Geometry::token_bytes(const Recipe& recipe) const {
  uint64_t total = 0;
  for (const LayerLayout& layout : layer_layouts(recipe, *this)) {
    if (layout.window_tokens > 0) continue;
    const uint64_t block_bytes = layout.seals ? layout.sealed.bytes(kPagesPerIndexBlock)
                                              : kPagesPerIndexBlock * layout.open.page_bytes();
    total += block_bytes / kPagesPerIndexBlock / kTokensPerPage;
  }
  return total;
}

uint64_t Geometry::cache_bytes(const Recipe& recipe, size_t n_tokens) const {
  const std::vector<LayerLayout> layouts = layer_layouts(recipe, *this);
  const std::vector<LayerRows> rows = rows_after_one_step(layouts, n_tokens);
  uint64_t total = 0;
  for (size_t i = 0; i < layouts.size(); ++i) {
    total += bytes_after(layouts[i], rows[i]);
    if (recipe.prompt_statistics && layouts[i].window_tokens == 0 && layouts[i].sealed_pages(n_tokens) > 0) {
      total += sized_statistics(recipe, n_kv_heads[i], head_dim).size_bytes();
    }
  }
  return total;
}

uint64_t Geometry::peak_bytes(const Recipe& recipe, const CacheRows& before, size_t n_total,
                              size_t step_tokens) const {
  const std::vector<LayerLayout> layouts = layer_layouts(recipe, *this);
  std::vector<LayerRows> rows;
  for (const LayerLayout& layout : layouts) {
    const bool windowed = layout.window_tokens > 0;
    rows.push_back(
        {before.n_tokens, windowed ? before.n_tokens - layout.left_behind(before.n_tokens) : before.n_rows});
  }
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
