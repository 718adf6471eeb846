// The tier that a recipe names.
#pragma once

#include <memory>

#include "cache/geometry.h"
#include "cache/recipe.h"
#include "store/page.h"
#include "tier/tier.h"

namespace quire {

// nullptr for a recipe whose pages lie in memory. Its memory counts against the pool's budget. Throws Error
// where the folder, the device or the budget does not allow it.
std::shared_ptr<Tier> make_tier(const Recipe& recipe, const Geometry& geometry, PagePool& pool);
// The same on a device of the caller's.
std::shared_ptr<Tier> make_tier(const Recipe& recipe, const Geometry& geometry, PagePool& pool,
                                std::unique_ptr<SlabDevice> device);

}  // namespace quire
