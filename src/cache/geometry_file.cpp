#include "cache/geometry_file.h"

#include <bit>
#include <cmath>
#include <span>

namespace quire {

namespace {

// More than any model has of each; products of these with a page's bytes stay far from 2^64.
constexpr uint32_t kMostLayers = 1u << 16;
constexpr uint32_t kMostHeads = 1u << 16;
constexpr uint32_t kMostHeadDim = 1u << 16;
constexpr uint32_t kMostWindow = 1u << 31;

constexpr size_t kGeometryHeaderValues = 3;

}  // namespace

std::vector<uint32_t> geometry_values(const Geometry& geometry) {
  std::vector<uint32_t> values = {static_cast<uint32_t>(geometry.n_layers),
                                  static_cast<uint32_t>(geometry.n_heads),
                                  static_cast<uint32_t>(geometry.head_dim)};
  for (const size_t n : geometry.n_kv_heads) values.push_back(static_cast<uint32_t>(n));
  if (!geometry.has_windows() && geometry.score_softcap == 0) return values;
  for (size_t layer = 0; layer < geometry.n_layers; ++layer) {
    const size_t window = geometry.window_tokens.empty() ? 0 : geometry.window_tokens[layer];
    values.push_back(static_cast<uint32_t>(window));
  }
  values.push_back(std::bit_cast<uint32_t>(geometry.score_softcap));
  return values;
}

Geometry read_geometry(const SectionFile& file) {
  const std::vector<uint32_t> values = file.get_values<uint32_t>("geometry");
  const auto fail = [&] { file.fail_section("geometry", "it is no shape of a model"); };
  if (values.size() < kGeometryHeaderValues || values[0] > kMostLayers) fail();
  const size_t n_layers = values[0];
  const bool has_windows = values.size() == kGeometryHeaderValues + 2 * n_layers + 1;
  if (!has_windows && values.size() != kGeometryHeaderValues + n_layers) fail();
  const std::span<const uint32_t> layers = std::span(values).subspan(kGeometryHeaderValues);
  Geometry geometry;
  geometry.n_layers = n_layers;
  geometry.n_heads = values[1];
  geometry.head_dim = values[2];
  geometry.n_kv_heads.assign(layers.begin(), layers.begin() + static_cast<ptrdiff_t>(n_layers));
  if (geometry.n_heads > kMostHeads || geometry.head_dim == 0 || geometry.head_dim > kMostHeadDim) fail();
  for (const size_t n : geometry.n_kv_heads) {
    if (n > geometry.n_heads || (n > 0 && geometry.n_heads % n != 0)) fail();
  }
  if (!has_windows) return geometry;
  for (const uint32_t window : layers.subspan(n_layers, n_layers)) {
    if (window > kMostWindow) fail();
    geometry.window_tokens.push_back(window);
  }
  geometry.score_softcap = std::bit_cast<float>(layers.back());
  if (!(geometry.score_softcap >= 0) || !std::isfinite(geometry.score_softcap)) fail();
  if (!geometry.has_windows()) geometry.window_tokens.clear();
  return geometry;
}

}  // namespace quire
