#include "engine/butler_asset.h"

#include <algorithm>
#include <filesystem>
#include <vector>

#include "base/error.h"
#include "weights/safetensors.h"

namespace quire {

namespace {

std::vector<std::string> butler_files(const std::string& folder) {
  std::vector<std::string> paths;
  std::error_code error;
  for (std::filesystem::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename().string();
    if (name.starts_with("butler") && name.ends_with(".safetensors")) paths.push_back(at->path().string());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

bool is_of_model(const std::string& path, std::string_view fingerprint) {
  try {
    const SafetensorsFile file = SafetensorsFile::open(path);
    const auto model = file.metadata().find("model");
    return model != file.metadata().end() && model->second == fingerprint;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace

std::string find_butler_asset(std::span<const std::string> folders, std::string_view fingerprint) {
  for (const std::string& folder : folders) {
    for (const std::string& path : butler_files(folder)) {
      if (is_of_model(path, fingerprint)) return path;
    }
  }
  return {};
}

}  // namespace quire
