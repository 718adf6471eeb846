// model.safetensors.index.json: which file has which tensor. Internal to the room.
//
//   {"metadata": {...}, "weight_map": {"model.norm.weight": "model-00002-of-00002.safetensors", ...}}
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace quire {

struct ShardIndex {
  std::map<std::string, std::string> file_of;  // by tensor
  std::vector<std::string> files;              // each once, sorted; plain names of the same folder
};

// Throws Error "PATH: ...", also for a name that could lead out of the folder.
ShardIndex read_shard_index(std::string_view json, const std::string& path);

}  // namespace quire
