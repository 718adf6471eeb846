// The tokenizer of a model's folder: tokenizer.json, and what the files beside it say about the tokens at
// both ends.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "base/error.h"
#include "text/tokenizer_json.h"
#include "text/tokenizer_json_parser.h"

namespace quire {
namespace {

using Json = nlohmann::json;

constexpr size_t kMaxTokenizerBytes = size_t{512} << 20;
constexpr size_t kMaxConfigBytes = size_t{64} << 20;

// The object in FOLDER/NAME; null if there is no such file.
Json read_config(const std::string& folder, const char* name) {
  const std::string path = folder + "/" + name;
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return {};
  const std::string text = read_small_file(path, kMaxConfigBytes);
  try {
    return parse_json_object(text);
  } catch (const Error& error) {
    throw Error(path + ": " + error.what());
  }
}

const Json* find_field(const Json& config, const char* name) {
  const auto found = config.find(name);
  return config.is_object() && found != config.end() && !found->is_null() ? &*found : nullptr;
}

// "bos_token": "<s>" or {"content": "<s>", ...}.
std::optional<int32_t> find_named(const Vocabulary& vocabulary, const Json& config, const char* name) {
  const Json* token = find_field(config, name);
  if (token != nullptr && token->is_object()) token = find_field(*token, "content");
  if (token == nullptr || !token->is_string()) return std::nullopt;
  const auto found = std::ranges::find(vocabulary.tokens, token->get_ref<const std::string&>());
  if (found == vocabulary.tokens.end()) return std::nullopt;
  return static_cast<int32_t>(found - vocabulary.tokens.begin());
}

// "eos_token_id": 2 or [2, 7]; ids that no token has are left out, as models pad their embeddings.
std::vector<int32_t> find_ids(const Vocabulary& vocabulary, const Json& config, const char* name) {
  const Json* value = find_field(config, name);
  if (value == nullptr) return {};
  std::vector<int32_t> ids;
  const auto add = [&](const Json& id) {
    if (id.is_number_unsigned() && id.get<uint64_t>() < vocabulary.tokens.size())
      ids.push_back(id.get<int32_t>());
  };
  if (value->is_array()) {
    for (const Json& id : *value) add(id);
  } else {
    add(*value);
  }
  return ids;
}

// Hugging Face's classes for these put the tokens at both ends themselves, by these flags.
void read_added_ends(const Json& config, Vocabulary& vocabulary) {
  const Json* name = find_field(config, "tokenizer_class");
  if (name == nullptr || !name->is_string()) return;
  const std::string& text = name->get_ref<const std::string&>();
  if (!text.starts_with("Llama") && !text.starts_with("CodeLlama") && !text.starts_with("Gemma")) return;
  const auto read = [&](const char* field, bool has_token, bool& flag) {
    const Json* value = find_field(config, field);
    if (value != nullptr && value->is_boolean()) flag = value->get<bool>() && has_token;
  };
  read("add_bos_token", vocabulary.bos_id.has_value(), vocabulary.add_bos);
  read("add_eos_token", vocabulary.eos_id.has_value(), vocabulary.add_eos);
}

}  // namespace

std::string read_small_file(const std::string& path, size_t max_bytes) {
  std::error_code error;
  const uintmax_t n_bytes = std::filesystem::file_size(path, error);
  if (error) throw Error("cannot read " + path + ": " + error.message());
  if (n_bytes > max_bytes)
    throw Error(path + " is too large for what it is: " + std::to_string(n_bytes) + " bytes");
  std::string text(static_cast<size_t>(n_bytes), '\0');
  std::ifstream in(path, std::ios::binary);
  if (!in.read(text.data(), static_cast<std::streamsize>(text.size()))) throw Error("cannot read " + path);
  return text;
}

OwnedVocabulary read_tokenizer_folder(const std::string& folder) {
  const std::string path = folder + "/tokenizer.json";
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) throw Error(folder + " has no tokenizer.json");
  OwnedVocabulary vocabulary = read_tokenizer_json(read_small_file(path, kMaxTokenizerBytes), path);

  const Json tokenizer = read_config(folder, "tokenizer_config.json");
  const Json generation = read_config(folder, "generation_config.json");
  Json model = read_config(folder, "config.json");
  if (const Json* text = find_field(model, "text_config"); text != nullptr && text->is_object()) {
    model = Json(*text);  // of a model that sees images too
  }
  if (!vocabulary.bos_id) vocabulary.bos_id = find_named(vocabulary, tokenizer, "bos_token");
  if (!vocabulary.eos_id) vocabulary.eos_id = find_named(vocabulary, tokenizer, "eos_token");
  vocabulary.pad_id = find_named(vocabulary, tokenizer, "pad_token");
  for (const Json* config : {&generation, static_cast<const Json*>(&model)}) {
    const std::vector<int32_t> begins = find_ids(vocabulary, *config, "bos_token_id");
    const std::vector<int32_t> ends = find_ids(vocabulary, *config, "eos_token_id");
    // A tokenizer that names its tokens and leaves out bos has none, whatever the model's numbers say.
    if (!vocabulary.bos_id && !begins.empty() && !tokenizer.is_object()) vocabulary.bos_id = begins.front();
    if (!vocabulary.eos_id && !ends.empty()) vocabulary.eos_id = ends.front();
    vocabulary.end_ids.insert(vocabulary.end_ids.end(), ends.begin(), ends.end());
  }
  read_added_ends(tokenizer, vocabulary);
  return vocabulary;
}

}  // namespace quire
