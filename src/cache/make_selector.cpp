#include "cache/make_selector.h"

#include <algorithm>
#include <string>

#include "base/error.h"
#include "cache/select_oracle.h"
#include "policy/select_butler.h"
#include "policy/select_doublesparse.h"
#include "policy/select_quest.h"
#include "policy/select_random.h"

namespace quire {

namespace {

std::unique_ptr<Selector> make_doublesparse(const Recipe& recipe, const Geometry& geometry,
                                            const Calibration* calibration) {
  std::span<const float> weights;
  if (recipe.select.number("from") == 0) {
    size_t n_values = 0;
    for (const size_t n : geometry.n_kv_heads) n_values += n * geometry.head_dim;
    if (calibration == nullptr || calibration->query_key.size() != n_values) {
      throw Error("recipe '" + recipe.text() +
                  "': the model's calibration does not know its strongest channels (quire calibrate), and "
                  "from=prompt does without");
    }
    weights = calibration->query_key;
  }
  return make_doublesparse_selector(recipe.select, geometry.n_kv_heads, geometry.head_dim, weights);
}

std::unique_ptr<Selector> make_butler(const Recipe& recipe, const Geometry& geometry,
                                      const ModelFacts& facts) {
  const auto fail = [&](const std::string& what) { throw Error("recipe '" + recipe.text() + "': " + what); };
  if (facts.butler == nullptr) fail("the model has no trained predictor (quire train-butler)");
  const ButlerGeometry& g = facts.butler->geometry;
  const auto has_heads = [&](size_t n) { return n == g.n_kv_heads; };
  if (g.n_layers != geometry.n_layers || g.n_heads != geometry.n_heads || g.head_dim != geometry.head_dim ||
      !std::all_of(geometry.n_kv_heads.begin(), geometry.n_kv_heads.end(), has_heads)) {
    fail("the predictor was trained for a model of another shape");
  }
  if (facts.width != 0 && g.width != facts.width) {
    fail("the predictor reads " + std::to_string(g.width) + " values a token, and the model's residual " +
         "stream has " + std::to_string(facts.width));
  }
  if (!facts.butler->is_whole()) fail("the predictor has weights of other lengths than its geometry says");
  const size_t dim = recipe.select.number("dim");
  if (g.dim != dim) {
    fail("the predictor projects keys to " + std::to_string(g.dim) +
         " values, not dim=" + std::to_string(dim));
  }
  return make_butler_selector(recipe.select, facts.butler);
}

}  // namespace

std::unique_ptr<Selector> make_selector(const Recipe& recipe, const Geometry& geometry,
                                        const ModelFacts& facts) {
  switch (recipe.select.policy) {
    case Policy::kQuest: return make_quest_selector(recipe.select);
    case Policy::kDoubleSparse: return make_doublesparse(recipe, geometry, facts.calibration.get());
    case Policy::kButler: return make_butler(recipe, geometry, facts);
    case Policy::kOracle: return make_oracle_selector(recipe.select);
    case Policy::kRandom: return make_random_selector(recipe.select);
    default: return std::make_unique<SelectAll>();
  }
}

}  // namespace quire
