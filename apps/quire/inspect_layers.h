// What a recipe makes of a model, layer by layer: which rows a layer sees and keeps, in which formats, and
// the risk that a key bias is to its key codes.
#pragma once

#include <cstdint>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "cache/recipe.h"
#include "weights/gguf.h"

namespace quire::cli {

// An array of one object a layer, or {"error": sentence} for a model that does not run. context_tokens: the
// length that sequences are to have, which a window may exceed; 0: the model's own.
nlohmann::ordered_json layers_report(const GgufFile& file, uint64_t context_tokens, const Recipe& recipe);
// Layers alike in one line.
std::string layer_formats_text(const nlohmann::ordered_json& layers, const std::string& recipe);
// Throws Error where the model runs, but not with this recipe.
void check_recipe(const GgufFile& file, uint64_t context_tokens, const Recipe& recipe);

}  // namespace quire::cli
