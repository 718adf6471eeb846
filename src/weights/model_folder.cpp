#include "weights/model_folder.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <memory>
#include <optional>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "weights/byte_cursor.h"
#include "weights/folder_config.h"
#include "weights/folder_tensors.h"
#include "weights/json_text.h"
#include "weights/shard_index.h"

namespace quire {
namespace {

namespace fs = std::filesystem;

// Far above what honest ones have: configurations are kilobytes, the index and the tokenizer's settings of
// the largest models a few megabytes.
constexpr uint64_t kMostConfigBytes = 4 << 20;
constexpr uint64_t kMostIndexBytes = 64 << 20;
constexpr uint64_t kMostTemplateBytes = 1 << 20;

constexpr const char* kWeights = "model.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";

class Folder {
 public:
  explicit Folder(std::string path) : path_(std::move(path)) {}

  const std::string& path() const { return path_; }
  std::string file(const std::string& name) const { return (fs::path(path_) / name).string(); }
  bool has(const std::string& name) const {
    std::error_code ignored;
    return fs::exists(file(name), ignored);
  }

  // The last part of the path, also of one that ends with a slash.
  std::string name() const {
    std::error_code ignored;
    fs::path whole = fs::absolute(path_, ignored).lexically_normal();
    if (!whole.has_filename()) whole = whole.parent_path();
    return whole.filename().string();
  }

  // Some name in it that ends so, for a hint; empty without.
  std::string any_ending(std::string_view suffix) const {
    std::error_code ignored;
    std::string first;
    for (const fs::directory_entry& entry : fs::directory_iterator(path_, ignored)) {
      const std::string entry_name = entry.path().filename().string();
      if (entry_name.ends_with(suffix) && (first.empty() || entry_name < first)) first = entry_name;
    }
    return first;
  }

 private:
  std::string path_;
};

[[noreturn]] void refuse_other_folder(const Folder& folder, const char* missing) {
  std::string sentence = folder.path() + ": this folder is no model, as it has no " + missing;
  if (const std::string gguf = folder.any_ending(".gguf"); !gguf.empty()) {
    sentence.append("; it has GGUF files, of which one can be given: ").append(in_quotes(gguf));
  }
  throw Error(sentence);
}

// The names of the files with tensors, and which tensors they should have.
struct Shards {
  std::vector<std::string> files;
  std::optional<ShardIndex> index;
};

Shards find_shards(const Folder& folder) {
  // In this order, as transformers has it.
  if (folder.has(kWeights)) return {{kWeights}, std::nullopt};
  if (!folder.has(kIndex)) {
    const std::string pickle = folder.any_ending(".bin");
    if (pickle.empty()) refuse_other_folder(folder, "model.safetensors and no index of shards");
    throw Error(folder.path() + ": the tensors are in " + in_quotes(pickle) +
                ", and only safetensors files are read (transformers writes them with save_pretrained)");
  }
  Shards shards;
  shards.index = read_shard_index(read_text_file(folder.file(kIndex), kMostIndexBytes), folder.file(kIndex));
  shards.files = shards.index->files;
  const auto is_missing = [&](const std::string& name) { return !folder.has(name); };
  const auto n_missing = std::count_if(shards.files.begin(), shards.files.end(), is_missing);
  if (n_missing > 0) {
    const auto first = std::find_if(shards.files.begin(), shards.files.end(), is_missing);
    throw Error(
        folder.path() + ": " + in_quotes(*first) +
        (n_missing > 1 ? " and " + std::to_string(n_missing - 1) + " more are missing" : " is missing") +
        " of the " + std::to_string(shards.files.size()) + " files that the index names");
  }
  return shards;
}

// The files, mapped, and all tensors in them.
class Tensors {
 public:
  explicit Tensors(const Folder& folder) : folder_(folder), shards_(find_shards(folder)) {
    for (const std::string& name : shards_.files) {
      names_.push_back(std::make_unique<std::string>(folder.file(name)));
      open(name, *names_.back());
    }
    check_index();
  }

  std::vector<FolderTensor> tensors;
  std::vector<MappedFile> files;

 private:
  void open(const std::string& name, const std::string& path) {
    SafetensorsFile file = SafetensorsFile::open(path);
    std::vector<Safetensor> found = file.tensors();
    files.push_back(std::move(file).take_mapping());
    for (Safetensor& tensor : found) {
      if (shards_.index) check_place(tensor.name, name, path);
      tensors.push_back({std::move(tensor), &path, files.back().bytes().data()});
    }
  }

  void check_place(const std::string& tensor, const std::string& name, const std::string& path) {
    const auto place = shards_.index->file_of.find(tensor);
    if (place == shards_.index->file_of.end()) {
      throw Error(path + ": tensor " + in_quotes(tensor) + " is not in the index " + in_quotes(kIndex));
    }
    if (place->second != name) {
      throw Error(path + ": tensor " + in_quotes(tensor) + " is here, but the index says that it is in " +
                  in_quotes(place->second));
    }
    ++n_placed_;
  }

  // Every tensor was placed once, as names in one file are different: so all are there if the numbers agree.
  void check_index() const {
    if (!shards_.index || n_placed_ == shards_.index->file_of.size()) return;
    std::set<std::string_view> found;
    for (const FolderTensor& each : tensors) found.insert(each.tensor.name);
    for (const auto& [tensor, file] : shards_.index->file_of) {
      if (found.contains(tensor)) continue;
      throw Error(folder_.file(file) + ": tensor " + in_quotes(tensor) +
                  " is missing, which the index says is here");
    }
  }

  const Folder& folder_;
  Shards shards_;
  size_t n_placed_ = 0;
  std::vector<std::unique_ptr<std::string>> names_;  // tensors point to them
};

// The value of "chat_template": a text, or several with names, of which one is the default.
std::string template_in(const nlohmann::json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_array()) return {};
  for (const nlohmann::json& each : value) {
    if (!each.is_object() || each.value("name", nlohmann::json()) != "default") continue;
    const auto text = each.find("template");
    if (text != each.end() && text->is_string()) return text->get<std::string>();
  }
  return {};
}

// In any of the places that it has had; empty without.
std::string read_chat_template(const Folder& folder) {
  if (folder.has("chat_template.jinja")) {
    return read_text_file(folder.file("chat_template.jinja"), kMostTemplateBytes);
  }
  for (const char* name : {"chat_template.json", "tokenizer_config.json"}) {
    if (!folder.has(name)) continue;
    const std::string path = folder.file(name);
    const nlohmann::json parsed = parse_json_object(read_text_file(path, kMostIndexBytes), path);
    const nlohmann::json* value = JsonReader(parsed, path).find("chat_template");
    if (value == nullptr) continue;
    if (std::string text = template_in(*value); !text.empty()) return text;
  }
  return {};
}

// What most values are stored in.
uint32_t file_type(const std::vector<TensorInfo>& tensors) {
  uint64_t n_f32 = 0, n_f16 = 0, n_bf16 = 0;
  for (const TensorInfo& tensor : tensors) {
    uint64_t& n = tensor.type == TensorType::F32 ? n_f32 : tensor.type == TensorType::F16 ? n_f16 : n_bf16;
    n += tensor.row_length() * tensor.n_rows();
  }
  constexpr uint32_t kAllF32 = 0, kMostlyF16 = 1, kMostlyBf16 = 32;
  if (n_f32 >= std::max(n_f16, n_bf16)) return kAllF32;
  return n_f16 >= n_bf16 ? kMostlyF16 : kMostlyBf16;
}

}  // namespace

GgufFile open_model_folder(const std::string& path) {
  const Folder folder(path);
  if (!folder.has("config.json")) refuse_other_folder(folder, "config.json");
  const std::string config_path = folder.file("config.json");
  const FolderConfig config = read_folder_config(read_text_file(config_path, kMostConfigBytes), config_path);
  Tensors tensors(folder);
  ModelParts parts;
  parts.path = path;
  parts.form = "Hugging Face folder";
  add_folder_tensors(config, tensors.tensors, path, parts);
  parts.files = std::move(tensors.files);
  MetadataBuilder metadata;
  add_config_metadata(config, metadata);
  metadata.add_text("general.type", "model");
  metadata.add_text("general.name", folder.name());
  metadata.add("general.file_type", file_type(parts.tensors));
  if (const std::string text = read_chat_template(folder); !text.empty()) {
    metadata.add_text("tokenizer.chat_template", text);
  }
  parts.metadata = std::move(metadata.entries);
  std::move(metadata.memory.begin(), metadata.memory.end(), std::back_inserter(parts.memory));
  return GgufFile::from_parts(std::move(parts));
}

}  // namespace quire
