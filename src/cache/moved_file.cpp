#include "cache/moved_file.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace quire {

namespace {

constexpr size_t kMovedHeaderValues = 2;

bool gathers_reserve(const Recipe& recipe) {
  return recipe.coded && recipe.keep.given() && !is_partial(recipe.keep);
}

// KV heads of a layer whose rows are dropped: layers with a window do without.
size_t dropping_heads(const Geometry& geometry, size_t layer) {
  return geometry.is_windowed(layer) ? 0 : geometry.n_kv_heads[layer];
}

// The rows of one head: positions, then masses.
HeadRows head_rows(std::span<const uint32_t> values) {
  HeadRows rows;
  const size_t n = values.size() / 2;
  rows.positions.assign(values.begin(), values.begin() + static_cast<ptrdiff_t>(n));
  for (const uint32_t value : values.subspan(n)) rows.mass.push_back(std::bit_cast<float>(value));
  return rows;
}

bool are_distinct(std::vector<uint32_t> positions, size_t n_tokens) {
  std::ranges::sort(positions);
  return std::ranges::adjacent_find(positions) == positions.end() &&
         (positions.empty() || positions.back() < n_tokens);
}

void check_rows(const SectionFile& file, const Retention& retention, const HeadRows& rows, size_t n_tokens) {
  if (!are_distinct(rows.positions, n_tokens)) {
    file.fail_section("moved", "the positions are not of different tokens");
  }
  if (!std::ranges::all_of(rows.mass, [](float x) { return x >= 0 && std::isfinite(x); })) {
    file.fail_section("moved", "a mass is no sum of attention");
  }
  if (!retention.can_hold(rows, n_tokens)) {
    file.fail_section("moved", "the rows are not those that the recipe keeps");
  }
}

void read_dropping(const SectionFile& file, const Recipe& recipe, const Geometry& geometry, size_t n_tokens,
                   std::span<const uint32_t> values, SavedMoves& saved) {
  if (n_tokens > kMostSavedTokens)
    file.fail_section("rows", "it counts more tokens than a sequence can have");
  size_t n_heads = 0;
  for (size_t layer = 0; layer < geometry.n_layers; ++layer) n_heads += dropping_heads(geometry, layer);
  if (values.size() < kMovedHeaderValues) file.fail_section("moved", "its length is wrong");
  saved.n_generated = values[0];
  const size_t n_rows = values[1];
  std::span<const uint32_t> rest = values.subspan(kMovedHeaderValues);
  if (n_heads == 0 ? !rest.empty() : rest.size() % n_heads != 0 || rest.size() / n_heads != 2 * n_rows) {
    file.fail_section("moved", "its length is wrong");
  }
  if (n_rows > n_tokens || (n_rows == 0 && n_tokens > 0) || saved.n_generated > n_tokens) {
    file.fail_section("moved", "its counts do not fit the number of tokens");
  }
  saved.n_left = n_tokens - n_rows;
  const auto retention = make_retention(recipe.keep, recipe.sink_tokens);
  for (size_t layer = 0; layer < geometry.n_layers; ++layer) {
    std::vector<HeadRows>& heads = saved.rows.emplace_back();
    if (geometry.is_windowed(layer)) heads.resize(geometry.n_kv_heads[layer]);
    for (size_t head = 0; head < dropping_heads(geometry, layer); ++head) {
      heads.push_back(head_rows(rest.first(2 * n_rows)));
      check_rows(file, *retention, heads.back(), n_tokens);
      rest = rest.subspan(2 * n_rows);
    }
  }
}

void read_reserve(const SectionFile& file, const Recipe& recipe, const Geometry& geometry, size_t n_tokens,
                  std::span<const size_t> n_sealed, std::vector<uint32_t> values, SavedMoves& saved) {
  const size_t layer = geometry.first_full_layer();
  const size_t n_pages = layer < n_sealed.size() ? n_sealed[layer] : 0;
  const LogReserve reserve = log_reserve(recipe.keep, recipe.sink_tokens);
  if (!Reserving::can_lie(reserve, n_tokens, n_pages, values)) {
    file.fail_section("moved", "the positions are not those of the open rows");
  }
  saved.open = std::move(values);
}

}  // namespace

bool has_moved_rows(const Recipe& recipe) { return recipe.drops() || gathers_reserve(recipe); }

std::vector<uint32_t> moved_values(const Cache& cache) {
  if (const Reserving* reserving = cache.reserving()) {
    return {reserving->open().begin(), reserving->open().end()};
  }
  const Dropping& dropping = *cache.dropping();
  std::vector<uint32_t> values = {static_cast<uint32_t>(dropping.n_generated()), 0};
  for (size_t layer = 0; layer < cache.geometry().n_layers; ++layer) {
    for (size_t head = 0; head < dropping_heads(cache.geometry(), layer); ++head) {
      const HeadRows& rows = dropping.rows(layer, head);
      values[1] = static_cast<uint32_t>(rows.positions.size());
      values.insert(values.end(), rows.positions.begin(), rows.positions.end());
      for (const float mass : rows.mass) values.push_back(std::bit_cast<uint32_t>(mass));
    }
  }
  return values;
}

SavedMoves SavedMoves::read(const SectionFile& file, const Recipe& recipe, const Geometry& geometry,
                            size_t n_tokens, std::span<const size_t> n_sealed) {
  SavedMoves saved;
  std::vector<uint32_t> values = file.get_values<uint32_t>("moved");
  if (recipe.drops()) {
    read_dropping(file, recipe, geometry, n_tokens, values, saved);
  } else {
    read_reserve(file, recipe, geometry, n_tokens, n_sealed, std::move(values), saved);
  }
  return saved;
}

void SavedMoves::restore(Cache& cache) const {
  if (cache.recipe().drops()) {
    cache.restore_dropping(n_generated, rows);
  } else {
    cache.restore_reserving(open);
  }
}

}  // namespace quire
