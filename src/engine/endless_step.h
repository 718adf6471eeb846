// How a prompt is computed under a recipe that goes on past the context its model was trained for.
#pragma once

#include <cstddef>

#include "cache/recipe.h"

namespace quire {

// The most tokens of a step, each of which sees the window before it. recipe.endless() holds. Throws Error
// where the window leaves nothing of the trained context.
size_t endless_step_tokens(const Recipe& recipe, size_t trained_tokens);

}  // namespace quire
