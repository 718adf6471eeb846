#include "asset_folders.h"

#include <filesystem>

namespace quire::cli {

std::vector<std::string> asset_folders() {
  std::vector<std::string> folders;
  std::error_code error;
  const std::filesystem::path binary = std::filesystem::read_symlink("/proc/self/exe", error);
  if (!error) {
    folders.push_back(binary.parent_path().string());
    folders.push_back((binary.parent_path().parent_path() / "share" / "quire").string());
  }
  folders.emplace_back(QUIRE_SOURCE_ASSETS);
  return folders;
}

}  // namespace quire::cli
