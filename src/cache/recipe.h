// Recipes: how a cache keeps and reads its tokens, as plain data with one canonical text.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "format/row_format.h"

namespace quire {

// Every KV-cache method is a point on free axes; today there is one choice of retention (all tokens),
// selection (all tokens) and place (memory), and the row formats of keys and values are free.
struct Recipe {
  Format key_format = Format::kF16;
  Format value_format = Format::kF16;

  bool operator==(const Recipe&) const = default;

  // The canonical text: parse(text()) is the same recipe.
  //   full                 every token, f16 keys and values
  //   k=bf16,v=f16         every token in the formats named
  std::string text() const;

  // Reads `full`, `full(k=FORMAT,v=FORMAT)`, `k=FORMAT,v=FORMAT` (either may be left out: f16), or a format's
  // name alone for both. Throws Error of one sentence; an unknown name is answered with the nearest known.
  static Recipe parse(std::string_view text);
};

// What `quire recipes` and error messages list.
struct RecipeInfo {
  const char* name;
  const char* summary;
};
std::span<const RecipeInfo> known_recipes();

}  // namespace quire
