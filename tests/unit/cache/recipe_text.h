// What texts of recipes are printed as, and refused with.
#pragma once

#include <string>
#include <string_view>

#include "base/error.h"
#include "cache/recipe.h"

namespace quire {

inline std::string canonical(std::string_view text) { return Recipe::parse(text).text(); }

// Empty for what is taken.
inline std::string refusal(std::string_view text) {
  try {
    Recipe::parse(text);
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

}  // namespace quire
