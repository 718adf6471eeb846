// What a run says of its model's key bias.
#pragma once

#include <string>

#include <nlohmann/json_fwd.hpp>

#include "cache/recipe.h"
#include "model/model.h"

namespace quire::cli {

// For the closing line, with a separator before it; empty where the model has no key bias.
std::string key_bias_note(const Model& model, const Recipe& recipe);
// The member "key_bias", where the model has one.
void add_key_bias(const Model& model, const Recipe& recipe, nlohmann::ordered_json& object);

}  // namespace quire::cli
