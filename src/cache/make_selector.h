// The selector that a recipe names.
#pragma once

#include <memory>

#include "cache/geometry.h"
#include "cache/recipe.h"
#include "cache/statistics.h"
#include "policy/policy.h"

namespace quire {

// Throws Error where the facts lack what the policy wants to know of the model, or do not fit it.
std::unique_ptr<Selector> make_selector(const Recipe& recipe, const Geometry& geometry,
                                        const ModelFacts& facts);

}  // namespace quire
