#include "weights/open_model.h"

#include <filesystem>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "weights/model_folder.h"
#include "weights/split_file.h"

namespace quire {
namespace {

bool is_folder(const std::string& path) {
  std::error_code ignored;
  return path.find('\0') == std::string::npos && std::filesystem::is_directory(path, ignored);
}

// Files of a folder that someone may name in its place.
void refuse_file_of_folder(const std::string& path) {
  for (const char* suffix : {".safetensors", ".safetensors.index.json", "config.json"}) {
    if (path.ends_with(suffix)) {
      throw Error(path + ": this is a file of a model in Hugging Face form; give the folder that it lies in");
    }
  }
}

}  // namespace

GgufFile open_model(const std::string& path) {
  if (is_folder(path)) return open_model_folder(path);
  refuse_file_of_folder(path);
  GgufFile file = GgufFile::open_part(path);
  return is_part_of_split(file) ? join_split(std::move(file)) : std::move(file);
}

}  // namespace quire
