// Trained predictors that ship with the program.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace quire {

// "butler-FINGERPRINT.safetensors"
std::string butler_asset_name(std::string_view fingerprint);
// The path of the model's in the first of the folders that has it; empty: none has.
std::string find_butler_asset(std::span<const std::string> folders, std::string_view fingerprint);

}  // namespace quire
