// A row's code depends on the row, its layer and head, and the model: the bytes of sealed pages are the same
// however the tokens were cut into steps, by however many threads, and whatever came behind them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <vector>

#include "cache/cache.h"
#include "property/random.h"

namespace quire {

// The bytes of the exact sinks and of all sealed pages, [layer][...].
class CachePages {
 public:
  static std::vector<std::vector<std::byte>> sealed_bytes(const Cache& cache) {
    std::vector<std::vector<std::byte>> layers;
    for (size_t layer = 0; layer < cache.store_.n_layers(); ++layer) {
      const LayerView view = cache.store_.view(layer, cache.n_tokens());
      std::vector<std::byte>& bytes = layers.emplace_back();
      if (view.sinks != nullptr) append(*view.sinks, bytes);
      for (size_t page = 0; page < view.n_sealed(); ++page) append(*view.pages[page], bytes);
    }
    return layers;
  }

 private:
  static void append(const Page& page, std::vector<std::byte>& bytes) {
    bytes.insert(bytes.end(), page.data, page.data + page.size_bytes);
  }
};

namespace {

using test::Random;

const Geometry kShape{2, 4, 64, {2, 1}};

// Made-up statistics of the size that real ones have.
std::shared_ptr<const Calibration> made_up_calibration() {
  Random random(3);
  Calibration calibration;
  calibration.geometry = kShape;
  const size_t n = (2 + 1) * kShape.head_dim;
  calibration.key_mean = random.normals(n, 2);
  calibration.value_mean = random.normals(n, 0.3);
  calibration.key_balance = random.normals(n, 0.3);
  for (float& balance : calibration.key_balance) balance = std::exp(balance);
  return std::make_shared<const Calibration>(calibration);
}

// Rows of n tokens of every layer; all layers read the same ones.
struct Rows {
  explicit Rows(size_t n) : n_tokens(n), width(2 * kShape.head_dim) {
    Random random(17);
    k = random.normals(n * width, 3);
    v = random.normals(n * width);
  }

  size_t n_tokens;
  size_t width;
  std::vector<float> k;
  std::vector<float> v;
};

void run_step(Cache& cache, const Rows& rows, size_t n, Team& team) {
  const size_t at = cache.n_tokens() * rows.width;
  cache.begin_step(n, team.size());
  team.run([&](Worker& worker) {
    for (size_t layer = 0; layer < kShape.n_layers; ++layer) {
      cache.begin_layer(worker, layer);
      cache.append(worker, layer, 0, n, rows.k.data() + at, rows.v.data() + at, rows.width);
      cache.end_layer(worker, layer);
    }
  });
  cache.end_step();
}

std::vector<std::vector<std::byte>> coded(const Recipe& recipe, const Rows& rows, size_t step,
                                          int n_threads) {
  PagePool pool;
  Cache cache(recipe, kShape, pool, {.calibration = made_up_calibration()});
  Team team(n_threads);
  while (cache.n_tokens() < rows.n_tokens) {
    run_step(cache, rows, std::min(step, rows.n_tokens - cache.n_tokens()), team);
  }
  return CachePages::sealed_bytes(cache);
}

class CodeBytes : public testing::TestWithParam<const char*> {};

TEST_P(CodeBytes, DoNotDependOnTheStepsOrTheThreads) {
  const Recipe recipe = Recipe::parse(GetParam());
  const Rows rows(2000);
  const auto whole = coded(recipe, rows, 2000, 1);
  ASSERT_EQ(whole.size(), 2u);
  for (const auto& layer : whole) ASSERT_GT(layer.size(), 30 * 64 * 64u / 4);
  for (const size_t step : {1, 7, 64, 999}) EXPECT_TRUE(coded(recipe, rows, step, 1) == whole) << step;
  EXPECT_TRUE(coded(recipe, rows, 2000, 3) == whole);
}

TEST_P(CodeBytes, DoNotDependOnWhatFollows) {
  const Recipe recipe = Recipe::parse(GetParam());
  Rows rows(640);
  const auto longer = coded(recipe, rows, 640, 1);
  rows.n_tokens = 320;
  const auto first = coded(recipe, rows, 7, 1);
  for (size_t layer = 0; layer < first.size(); ++layer) {
    ASSERT_LT(0u, first[layer].size());
    ASSERT_LT(first[layer].size(), longer[layer].size());
    EXPECT_EQ(std::memcmp(first[layer].data(), longer[layer].data(), first[layer].size()), 0) << layer;
  }
}

INSTANTIATE_TEST_SUITE_P(Recipes, CodeBytes,
                         testing::Values("turbo4", "turbo2(frame=rotated)", "k=turbo4,v=turbo3", "kivi4",
                                         "k=turbo4,v=f16,sink=0"));

}  // namespace
}  // namespace quire
