// Trained predictors that ship with the program.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace quire {

// The path of the model's predictor: of the first file butler*.safetensors, by name, whose metadata name the
// model, in the first of the folders that has one. Empty: none has. A damaged file whose first bytes name the
// model is one of these, so that whoever loads it says what is wrong with it; other files that cannot be read
// are passed over.
std::string find_butler_asset(std::span<const std::string> folders, std::string_view fingerprint);

}  // namespace quire
