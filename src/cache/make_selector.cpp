#include "cache/make_selector.h"

#include "base/error.h"
#include "cache/select_oracle.h"
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

}  // namespace

std::unique_ptr<Selector> make_selector(const Recipe& recipe, const Geometry& geometry,
                                        const Calibration* calibration) {
  switch (recipe.select.policy) {
    case Policy::kQuest: return make_quest_selector(recipe.select);
    case Policy::kDoubleSparse: return make_doublesparse(recipe, geometry, calibration);
    case Policy::kOracle: return make_oracle_selector(recipe.select);
    case Policy::kRandom: return make_random_selector(recipe.select);
    default: return std::make_unique<SelectAll>();
  }
}

}  // namespace quire
