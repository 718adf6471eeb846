#include "cache/recipe.h"

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "base/error.h"

namespace quire {

namespace {

constexpr RecipeInfo kRecipes[] = {
    {"full", "every token in full, f16 keys and values unless k= and v= say otherwise"},
    {"k=FORMAT,v=FORMAT", "every token, keys and values in the formats named (f32, f16, bf16)"},
};

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t substituted = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({substituted, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

std::string nearest(std::string_view word, const std::vector<std::string_view>& known) {
  const auto closer = [&](std::string_view a, std::string_view b) {
    return edit_distance(word, a) < edit_distance(word, b);
  };
  return std::string(*std::min_element(known.begin(), known.end(), closer));
}

// At most 40 characters of what was given, so that an error stays a sentence.
std::string shown(std::string_view text) {
  constexpr size_t kMost = 40;
  return text.size() <= kMost ? std::string(text) : std::string(text.substr(0, kMost)) + "...";
}

Format parse_format(std::string_view name, std::string_view recipe) {
  if (const auto format = format_by_name(name)) return *format;
  std::vector<std::string_view> known;
  for (const FormatInfo& entry : kFormats) known.emplace_back(entry.name);
  throw Error("recipe '" + shown(recipe) + "': there is no format '" + shown(name) + "'; did you mean '" +
              nearest(name, known) + "'?");
}

// "k=f16,v=bf16" into `recipe`.
void parse_settings(std::string_view settings, std::string_view whole, Recipe& recipe) {
  bool has_key = false;
  bool has_value = false;
  while (true) {
    const size_t comma = settings.find(',');
    const std::string_view setting = settings.substr(0, comma);
    const size_t equals = setting.find('=');
    const std::string_view name = setting.substr(0, equals);
    if (equals == std::string_view::npos || (name != "k" && name != "v")) {
      throw Error("recipe '" + shown(whole) + "': '" + shown(setting) + "' is not k=FORMAT or v=FORMAT");
    }
    bool& seen = name == "k" ? has_key : has_value;
    if (seen) throw Error("recipe '" + shown(whole) + "': " + std::string(name) + "= is given twice");
    seen = true;
    (name == "k" ? recipe.key_format : recipe.value_format) = parse_format(setting.substr(equals + 1), whole);
    if (comma == std::string_view::npos) return;
    settings.remove_prefix(comma + 1);
  }
}

}  // namespace

std::string Recipe::text() const {
  if (*this == Recipe{}) return "full";
  return std::string("k=") + info(key_format).name + ",v=" + info(value_format).name;
}

Recipe Recipe::parse(std::string_view text) {
  Recipe recipe;
  if (text == "full") return recipe;
  if (const auto format = format_by_name(text)) {
    recipe.key_format = recipe.value_format = *format;
    return recipe;
  }
  constexpr std::string_view kFullWith = "full(";
  if (text.starts_with(kFullWith) && text.ends_with(')')) {
    std::string_view inner = text.substr(kFullWith.size());
    inner.remove_suffix(1);
    if (!inner.empty()) parse_settings(inner, text, recipe);
    return recipe;
  }
  if (text.starts_with("k=") || text.starts_with("v=")) {
    parse_settings(text, text, recipe);
    return recipe;
  }
  std::vector<std::string_view> known = {"full"};
  for (const FormatInfo& entry : kFormats) known.emplace_back(entry.name);
  throw Error("there is no recipe '" + shown(text) + "'; did you mean '" + nearest(text, known) + "'?");
}

std::span<const RecipeInfo> known_recipes() { return kRecipes; }

}  // namespace quire
