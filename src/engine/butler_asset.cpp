#include "engine/butler_asset.h"

#include <filesystem>

namespace quire {

std::string butler_asset_name(std::string_view fingerprint) {
  return std::string("butler-").append(fingerprint).append(".safetensors");
}

std::string find_butler_asset(std::span<const std::string> folders, std::string_view fingerprint) {
  for (const std::string& folder : folders) {
    const std::filesystem::path path = std::filesystem::path(folder) / butler_asset_name(fingerprint);
    std::error_code ignored;
    if (std::filesystem::is_regular_file(path, ignored)) return path.string();
  }
  return {};
}

}  // namespace quire
