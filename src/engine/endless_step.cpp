#include "engine/endless_step.h"

#include <algorithm>
#include <string>

#include "base/error.h"

namespace quire {

namespace {

constexpr size_t kMostStepTokens = 256;

}  // namespace

size_t endless_step_tokens(const Recipe& recipe, size_t trained_tokens) {
  const size_t window = recipe.sink_tokens + recipe.keep.number("window");
  if (window >= trained_tokens) {
    throw Error("recipe '" + recipe.text() + "': a window of " + std::to_string(window) +
                " tokens leaves nothing of the " + std::to_string(trained_tokens) +
                " that the model was trained for");
  }
  return std::min(kMostStepTokens, trained_tokens - window);
}

}  // namespace quire
