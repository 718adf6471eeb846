#include "cache/cache_file.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <initializer_list>
#include <string>

#include "base/checked.h"
#include "base/error.h"
#include "cache/geometry_file.h"
#include "cache/moved_file.h"
#include "format/frame.h"

namespace quire {
namespace {

// A file says nothing of places: exact pages are the same bytes wherever they lie.
size_t coded_pages(const Store& store, size_t layer) {
  return store.layer_layout(layer).sealed.is_exact() ? 0 : store.view(layer, store.n_tokens()).n_sealed();
}

std::vector<uint64_t> row_values(const Cache& cache) {
  const Store& store = cache.store();
  std::vector<uint64_t> values = {cache.n_tokens()};
  for (size_t layer = 0; layer < store.n_layers(); ++layer) {
    const bool windowed = store.layer_layout(layer).window_tokens > 0;
    values.push_back(windowed ? store.left_tokens(layer) / kTokensPerPage : coded_pages(store, layer));
  }
  return values;
}

constexpr const char* kNumberOfBytes = "the number of bytes";

uint64_t sum(std::initializer_list<uint64_t> parts) {
  uint64_t total = 0;
  for (const uint64_t part : parts) total = checked_add(total, part, kNumberOfBytes);
  return total;
}

// Of a layer that has seen n_tokens. Throws Error where the counts are absurd.
uint64_t layer_bytes(const LayerLayout& layout, size_t n_tokens, size_t n_left, size_t n_sealed) {
  const size_t n_rows = n_tokens - n_left;
  const size_t n_pages = n_rows / kTokensPerPage + (n_rows % kTokensPerPage != 0);
  const uint64_t open = checked_mul(n_pages - n_sealed, layout.open.page_bytes(), kNumberOfBytes);
  if (n_sealed == 0) return sum({open, n_left > 0 ? layout.beside_bytes() : 0});
  const uint64_t key_bytes = layout.open.n_kv_heads * row_bytes(layout.open.key_format, layout.open.head_dim);
  return sum(
      {open, checked_mul(n_sealed, layout.sealed.page_bytes(), kNumberOfBytes),
       checked_mul(layout.sealed.index_blocks(n_sealed), layout.sealed.index_block_bytes(), kNumberOfBytes),
       checked_mul(layout.n_exact_keys(n_sealed), key_bytes, kNumberOfBytes), layout.beside_bytes()});
}

// The pieces are counted as they are written.
Section pages_section(const Cache& cache) {
  const Store& store = cache.store();
  uint64_t n_bytes = 0;
  for (size_t layer = 0; layer < store.n_layers(); ++layer) {
    n_bytes += layer_bytes(store.layer_layout(layer), cache.n_tokens(), store.left_tokens(layer),
                           coded_pages(store, layer));
  }
  return {"pages", true, n_bytes, [&cache](const ByteSink& sink) {
            for (size_t layer = 0; layer < cache.store().n_layers(); ++layer) {
              cache.store().visit_blocks(layer, sink);
            }
          }};
}

Recipe read_recipe(const SectionFile& file) {
  const std::string text = file.get_text("recipe");
  // An answer to it would quote it.
  const bool readable = std::ranges::all_of(text, [](char c) { return c >= ' ' && c <= '~'; });
  if (!readable) file.fail_section("recipe", "it is not written as recipes are");
  try {
    const Recipe recipe = Recipe::parse(text);
    if (recipe.text() == text && !recipe.place.given()) return recipe;
  } catch (const Error& error) {
    file.fail_section("recipe", error.what());
  }
  file.fail_section("recipe", "it is not written as recipes are");
}

// Codes are made for heads of at most kMaxHeadDim, and their sizes are asked for only then.
void check_codes(const SectionFile& file, const SavedCache& saved) {
  if (saved.recipe.coded && saved.geometry.head_dim > kMaxHeadDim) {
    file.fail_section("geometry", "heads of this size cannot be coded");
  }
}

// Pages that are coded of n tokens: those that are due, and more where the sequence has been cut, which it
// never is behind a reserve.
void check_sealed(const SectionFile& file, const LayerLayout& layout, size_t n_tokens, size_t n_sealed) {
  const size_t n_due = layout.sealed_pages(n_tokens);
  const bool reserves = layout.reserve.given() || layout.key_reserve.given();
  const size_t n_most = layout.seals ? n_tokens / kTokensPerPage : 0;
  const bool possible = n_sealed >= n_due && n_sealed <= (reserves ? n_due : n_most);
  if (!possible) file.fail_section("rows", "the number of coded pages does not fit the recipe");
}

// Pages that have left a layer with a window: those behind it, or more where the sequence has been cut.
void check_left(const SectionFile& file, const LayerLayout& layout, size_t n_tokens, uint64_t n_pages) {
  const bool possible = n_pages <= n_tokens / kTokensPerPage &&
                        n_pages * kTokensPerPage >= layout.left_behind(n_tokens) &&
                        layout.shortest_cut(n_pages * kTokensPerPage) <= n_tokens;
  if (!possible) file.fail_section("rows", "the number of pages that have left does not fit the window");
}

void check_pages(const SectionFile& file, const SavedCache& saved) {
  uint64_t wanted = 0;
  try {
    const std::vector<LayerLayout> layouts = layer_layouts(saved.recipe, saved.geometry);
    for (size_t layer = 0; layer < layouts.size(); ++layer) {
      const uint64_t n_bytes =
          layer_bytes(layouts[layer], saved.n_tokens, saved.n_left(layer), saved.n_sealed[layer]);
      wanted = sum({wanted, n_bytes});
    }
  } catch (const Error& error) {
    file.fail_section("rows", error.what());
  }
  if (wanted == saved.pages.size()) return;
  file.fail_section("pages", "it should have " + std::to_string(wanted) + " bytes and has " +
                                 std::to_string(saved.pages.size()));
}

// Each of them holds the newest row at least. What an empty cache may say is more than any model has.
void check_windowed_heads(const SectionFile& file, const SavedCache& saved) {
  constexpr uint64_t kMostWithoutRows = uint64_t{1} << 20;
  uint64_t n_heads = 0;
  for (size_t layer = 0; layer < saved.geometry.n_layers; ++layer) {
    if (saved.geometry.is_windowed(layer)) n_heads += saved.geometry.n_kv_heads[layer];
  }
  if (n_heads > std::max<uint64_t>(kMostWithoutRows, saved.pages.size())) {
    file.fail_section("geometry", "it has more KV heads than the file has bytes of rows");
  }
}

void read_rows(const SectionFile& file, SavedCache& saved) {
  const std::vector<uint64_t> values = file.get_values<uint64_t>("rows");
  if (values.size() != 1 + saved.geometry.n_layers) file.fail_section("rows", "its length is wrong");
  saved.pages = file.get("pages");
  // A token takes at least a byte, unless it has left.
  const bool all_may_leave =
      saved.recipe.drops() || saved.geometry.first_full_layer() == saved.geometry.n_layers;
  if (values[0] > (all_may_leave ? kMostSavedTokens : saved.pages.size())) {
    file.fail_section("rows", "it counts more tokens than the file holds");
  }
  saved.n_tokens = values[0];
  check_windowed_heads(file, saved);
  const std::vector<LayerLayout> layouts = layer_layouts(saved.recipe, saved.geometry);
  for (size_t layer = 0; layer < layouts.size(); ++layer) {
    const bool windowed = layouts[layer].window_tokens > 0;
    if (windowed) check_left(file, layouts[layer], saved.n_tokens, values[1 + layer]);
    if (!windowed) check_sealed(file, layouts[layer], saved.n_tokens, values[1 + layer]);
    saved.n_sealed.push_back(windowed ? 0 : values[1 + layer]);
    saved.left_pages.push_back(windowed ? values[1 + layer] : 0);
  }
  const auto read_moves = [&] {
    saved.moves = SavedMoves::read(file, saved.recipe, saved.geometry, saved.n_tokens, saved.n_sealed);
  };
  // Where rows have left, the pages hold no more than those that are named; else they tell whether there are
  // so many tokens.
  if (saved.recipe.drops()) read_moves();
  check_pages(file, saved);
  if (has_moved_rows(saved.recipe) && !saved.recipe.drops()) read_moves();
}

// The parts of a layer's statistics, in the order of the file.
template <typename Statistics>
auto statistics_parts(Statistics& statistics) {
  return std::array{&statistics.key_mean, &statistics.key_balance, &statistics.value_mean,
                    &statistics.codebook};
}

std::vector<float> statistics_values(const Cache& cache) {
  std::vector<float> values;
  for (size_t layer = 0; layer < cache.store().n_layers(); ++layer) {
    const LayerStatistics* statistics = cache.layer_statistics(layer);
    if (statistics == nullptr || cache.store().view(layer, cache.n_tokens()).n_sealed() == 0) continue;
    for (const std::vector<float>* part : statistics_parts(*statistics)) {
      values.insert(values.end(), part->begin(), part->end());
    }
  }
  return values;
}

std::vector<double> query_values(const Cache& cache) {
  std::vector<double> values;
  for (size_t layer = 0; layer < cache.store().n_layers(); ++layer) {
    if (cache.store().view(layer, cache.n_tokens()).n_sealed() > 0) continue;
    const PromptObserver& observer = cache.observer(layer);
    std::vector<double> squares = observer.query_squares;
    squares.resize(cache.geometry().n_kv_heads[layer] * cache.geometry().head_dim);
    values.push_back(static_cast<double>(observer.n_queries));
    values.insert(values.end(), squares.begin(), squares.end());
  }
  return values;
}

std::vector<uint32_t> kept_values(const Cache& cache) {
  std::vector<uint32_t> values;
  for (size_t layer = 0; layer < cache.store().n_layers(); ++layer) {
    const KeptRows* kept = cache.store().view(layer, cache.n_tokens()).kept;
    if (kept == nullptr) continue;
    values.push_back(static_cast<uint32_t>(kept->n));
    values.insert(values.end(), kept->positions.begin(), kept->positions.end());
  }
  return values;
}

void check_finite(const SectionFile& file, std::span<const float> values) {
  if (std::all_of(values.begin(), values.end(), [](float x) { return std::isfinite(x); })) return;
  file.fail_section("statistics", "a value is not finite");
}

void read_statistics(const SectionFile& file, SavedCache& saved) {
  saved.statistics.resize(saved.geometry.n_layers);
  if (!saved.recipe.prompt_statistics) return;
  const std::vector<float> values = file.get_values<float>("statistics");
  check_finite(file, values);
  std::span<const float> rest = values;
  for (size_t layer = 0; layer < saved.geometry.n_layers; ++layer) {
    if (saved.n_sealed[layer] == 0) continue;
    saved.statistics[layer] =
        sized_statistics(saved.recipe, saved.geometry.n_kv_heads[layer], saved.geometry.head_dim);
    for (std::vector<float>* part : statistics_parts(saved.statistics[layer])) {
      if (part->size() > rest.size()) file.fail_section("statistics", "its length is wrong");
      std::copy_n(rest.begin(), part->size(), part->begin());
      rest = rest.subspan(part->size());
    }
    const std::vector<float>& balance = saved.statistics[layer].key_balance;
    if (!std::all_of(balance.begin(), balance.end(), [](float x) { return x > 0; })) {
      file.fail_section("statistics", "a balance is not positive");
    }
  }
  if (!rest.empty()) file.fail_section("statistics", "its length is wrong");
}

void read_queries(const SectionFile& file, SavedCache& saved) {
  saved.observers.resize(saved.geometry.n_layers);
  if (!saved.recipe.prompt_statistics) return;
  const std::vector<double> values = file.get_values<double>("queries");
  constexpr double kMostQueries = 0x1p53;
  if (!std::all_of(values.begin(), values.end(), [](double x) { return x >= 0 && std::isfinite(x); })) {
    file.fail_section("queries", "a value is no sum of squares");
  }
  std::span<const double> rest = values;
  for (size_t layer = 0; layer < saved.geometry.n_layers; ++layer) {
    if (saved.n_sealed[layer] > 0) continue;
    const size_t n = saved.geometry.n_kv_heads[layer] * saved.geometry.head_dim;
    if (rest.size() < 1 + n || rest[0] > kMostQueries) file.fail_section("queries", "its length is wrong");
    saved.observers[layer].n_queries = static_cast<size_t>(rest[0]);
    saved.observers[layer].query_squares.assign(rest.begin() + 1,
                                                rest.begin() + 1 + static_cast<ptrdiff_t>(n));
    saved.observers[layer].last_query.resize(n);
    rest = rest.subspan(1 + n);
  }
  if (!rest.empty()) file.fail_section("queries", "its length is wrong");
}

// Positions must rise, and lie in coded pages behind the sinks.
void check_positions(const SectionFile& file, const SavedCache& saved, size_t layer,
                     std::span<const uint32_t> positions) {
  const size_t n = positions.size() / saved.geometry.n_kv_heads[layer];
  for (size_t i = 0; i < positions.size(); ++i) {
    const bool rises =
        i % n == 0 ? positions[i] >= saved.recipe.sink_tokens : positions[i] > positions[i - 1];
    if (!rises || positions[i] >= saved.n_sealed[layer] * kTokensPerPage) {
      file.fail_section("kept", "the positions are not of coded rows in order");
    }
  }
}

void read_kept(const SectionFile& file, SavedCache& saved) {
  saved.kept_positions.resize(saved.geometry.n_layers);
  if (saved.recipe.full_rows == 0) return;
  const std::vector<uint32_t> values = file.get_values<uint32_t>("kept");
  std::span<const uint32_t> rest = values;
  for (size_t layer = 0; layer < saved.geometry.n_layers; ++layer) {
    const size_t n_heads = saved.geometry.n_kv_heads[layer];
    if (saved.n_sealed[layer] == 0 || n_heads == 0) continue;
    if (rest.empty() || rest[0] == 0 || rest[0] > saved.recipe.full_rows ||
        rest.size() < 1 + rest[0] * n_heads) {
      file.fail_section("kept", "its length is wrong");
    }
    const std::span<const uint32_t> positions = rest.subspan(1, rest[0] * n_heads);
    check_positions(file, saved, layer, positions);
    saved.kept_positions[layer].assign(positions.begin(), positions.end());
    rest = rest.subspan(1 + positions.size());
  }
  if (!rest.empty()) file.fail_section("kept", "its length is wrong");
}

}  // namespace

uint64_t calibration_hash(const Calibration& calibration, const Recipe& recipe) {
  Checksum hash;
  for (const std::vector<float>* values :
       {&calibration.key_mean, &calibration.key_balance, &calibration.value_mean}) {
    hash.add(std::as_bytes(std::span(*values)));
  }
  if (recipe.select.given()) hash.add(std::as_bytes(std::span(calibration.query_key)));
  return hash.value();
}

std::vector<Section> cache_sections(const Cache& cache) {
  const std::string recipe = cache.recipe().without_place().text();
  const std::vector<uint32_t> geometry = geometry_values(cache.geometry());
  const std::vector<uint64_t> rows = row_values(cache);
  std::vector<Section> sections;
  sections.push_back(value_section<char>("recipe", recipe));
  sections.push_back(value_section<uint32_t>("geometry", geometry));
  if (cache.recipe().needs_calibration()) {
    const uint64_t hash = calibration_hash(*cache.facts().calibration, cache.recipe());
    sections.push_back(value_section<uint64_t>("calibration", {&hash, 1}));
  }
  sections.push_back(value_section<uint64_t>("rows", rows));
  if (cache.recipe().prompt_statistics) {
    sections.push_back(value_section<float>("statistics", statistics_values(cache)));
    sections.push_back(value_section<double>("queries", query_values(cache)));
  }
  if (cache.recipe().full_rows > 0) {
    sections.push_back(value_section<uint32_t>("kept", kept_values(cache)));
  }
  if (cache.hot_rows() != nullptr) {
    sections.push_back(value_section<uint64_t>("hot", hot_values(*cache.hot_rows(), cache.store())));
  }
  if (cache.recipe().needs_butler()) {
    sections.push_back(value_section<uint64_t>("predicted", predicted_values(cache)));
  }
  if (has_moved_rows(cache.recipe())) {
    sections.push_back(value_section<uint32_t>("moved", moved_values(cache)));
  }
  sections.push_back(pages_section(cache));
  return sections;
}

SavedCache SavedCache::read(const SectionFile& file) {
  SavedCache saved;
  saved.recipe = read_recipe(file);
  saved.geometry = read_geometry(file);
  try {
    check_windows(saved.recipe, saved.geometry);
  } catch (const Error& error) {
    file.fail_section("geometry", error.what());
  }
  check_codes(file, saved);
  if (saved.recipe.needs_calibration()) {
    const std::vector<uint64_t> hash = file.get_values<uint64_t>("calibration");
    if (hash.size() != 1) file.fail_section("calibration", "its length is wrong");
    saved.calibration = hash[0];
  }
  read_rows(file, saved);
  read_statistics(file, saved);
  read_queries(file, saved);
  read_kept(file, saved);
  if (saved.recipe.needs_butler()) {
    saved.prediction = SavedPrediction::read(file, saved.geometry, saved.n_tokens);
  }
  if (saved.recipe.promote.given()) {
    saved.hot = SavedHot::read(file, saved.recipe, saved.geometry, saved.n_sealed);
  }
  return saved;
}

std::string SavedCache::mismatch(const Cache& cache) const {
  const Geometry& other = cache.geometry();
  if (geometry.n_heads != other.n_heads || geometry.head_dim != other.head_dim ||
      geometry.n_kv_heads != other.n_kv_heads) {
    return "the saved cache is of a model of another shape";
  }
  if (geometry_values(geometry) != geometry_values(other)) {
    return "the saved cache is of a model with other windows or another soft cap of scores";
  }
  if (!(recipe == cache.recipe().without_place())) {
    return "the saved cache has the recipe " + recipe.text() + ", not " +
           cache.recipe().without_place().text();
  }
  if (calibration && *calibration != calibration_hash(*cache.facts().calibration, recipe)) {
    return "the saved cache was coded with another calibration of the model";
  }
  if (recipe.promote.given() && hot.slots.size() > cache.hot_rows()->policy.settings().capacity_pages) {
    return "the saved cache has copies of pages, for which this model has no layer";
  }
  if (recipe.needs_butler() && prediction.hash != butler_hash(*cache.facts().butler)) {
    return "the saved cache has keys as another predictor of the model sees them";
  }
  return {};
}

void SavedCache::restore(Cache& cache, const ByteSink& done) const {
  QUIRE_CHECK(mismatch(cache).empty());
  std::span<const std::byte> rest = pages;
  std::vector<LayerContents> contents;
  for (size_t layer = 0; layer < geometry.n_layers; ++layer) {
    const LayerLayout& layout = cache.store().layer_layout(layer);
    const size_t n_outside = layout.sealed.is_exact() ? layout.sealed_pages(n_tokens) : 0;
    contents.push_back({n_sealed[layer] + n_outside, n_left(layer), kept_positions[layer]});
  }
  cache.restore(n_tokens, contents, [&](std::span<std::byte> block) {
    QUIRE_CHECK(block.size() <= rest.size());
    std::memcpy(block.data(), rest.data(), block.size());
    if (done) done(rest.first(block.size()));
    rest = rest.subspan(block.size());
  });
  for (size_t layer = 0; layer < geometry.n_layers && recipe.prompt_statistics; ++layer) {
    if (n_sealed[layer] > 0) {
      cache.restore_statistics(layer, statistics[layer]);
    } else {
      cache.restore_observer(layer, observers[layer]);
    }
  }
  if (recipe.needs_butler()) cache.restore_selector(prediction.state);
  if (recipe.promote.given()) cache.restore_hot(hot.pages, hot.counters, hot.slots);
  if (has_moved_rows(recipe)) moves.restore(cache);
}

}  // namespace quire
