// quire recipes: what --kv understands.
#include <algorithm>

#include "cache/recipe.h"
#include "commands.h"
#include "terminal.h"

namespace quire::cli {

Command add_recipes(CLI::App& root) {
  CLI::App* app = root.add_subcommand("recipes", "List the recipes that --kv understands.");
  app->footer("Example:\n  quire recipes");
  return {app, [] {
            size_t width = 0;
            for (const RecipeInfo& recipe : known_recipes())
              width = std::max(width, std::string(recipe.name).size());
            for (const RecipeInfo& recipe : known_recipes()) {
              std::string name = recipe.name;
              name.resize(width + 2, ' ');
              write_out(name + recipe.summary + "\n");
            }
            return kOk;
          }};
}

}  // namespace quire::cli
