// Where what ships with the program lies.
#pragma once

#include <string>
#include <vector>

namespace quire::cli {

// Beside the binary, in the share folder of its installation, and in the source tree that it was built from.
std::vector<std::string> asset_folders();

}  // namespace quire::cli
