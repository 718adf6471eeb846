#include "weights/shard_index.h"

#include <set>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "weights/byte_cursor.h"
#include "weights/json_text.h"

namespace quire {
namespace {

constexpr const char* kMap = "weight_map";

bool is_plain_name(std::string_view name) {
  return name.ends_with(".safetensors") && name.size() <= 255 && name.front() != '.' &&
         name.find_first_of(std::string_view("/\\\0", 3)) == std::string_view::npos;
}

}  // namespace

ShardIndex read_shard_index(std::string_view text, const std::string& path) {
  const nlohmann::json parsed = parse_json_object(text, path);
  const JsonReader json(parsed, path);
  (void)json.object(kMap);  // refuses what is none
  ShardIndex index;
  std::set<std::string> files;
  for (const auto& [tensor, file] : json.find(kMap)->items()) {
    if (!file.is_string() || !is_plain_name(file.get_ref<const std::string&>())) {
      throw Error(path + ": tensor " + in_quotes(tensor) + " lies in " + shown_json(file) +
                  ", which is not the name of a safetensors file beside the index");
    }
    files.insert(file.get_ref<const std::string&>());
    index.file_of.emplace(tensor, file.get_ref<const std::string&>());
  }
  if (files.empty()) throw Error(path + ": the index has no tensors");
  index.files.assign(files.begin(), files.end());
  return index;
}

}  // namespace quire
