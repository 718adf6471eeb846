#include "engine/butler_asset.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
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

// A file that cannot be read as what it should be may still name the model where its header is, or was.
bool names_model(const std::string& path, std::string_view fingerprint) {
  constexpr size_t kHeaderBytes = size_t{1} << 16;
  std::ifstream file(path, std::ios::binary);
  std::string head(kHeaderBytes, '\0');
  file.read(head.data(), static_cast<std::streamsize>(head.size()));
  head.resize(static_cast<size_t>(file.gcount()));
  return head.find('"' + std::string(fingerprint) + '"') != std::string::npos;
}

bool is_of_model(const std::string& path, std::string_view fingerprint) {
  try {
    const SafetensorsFile file = SafetensorsFile::open(path);
    const auto model = file.metadata().find("model");
    return model != file.metadata().end() && model->second == fingerprint;
  } catch (const Error&) {
    return names_model(path, fingerprint);
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
