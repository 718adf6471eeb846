// The selector that a recipe names.
#pragma once

#include <memory>

#include "cache/geometry.h"
#include "cache/recipe.h"
#include "cache/statistics.h"
#include "policy/policy.h"

namespace quire {

// calibration: where the recipe needs one. Throws Error for one that does not know what the policy wants.
std::unique_ptr<Selector> make_selector(const Recipe& recipe, const Geometry& geometry,
                                        const Calibration* calibration);

}  // namespace quire
