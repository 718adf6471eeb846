#include "engine/vocabulary_reader.h"

#include <limits>
#include <string>

#include "base/error.h"

namespace quire {
namespace {

std::optional<int32_t> read_token_id(const GgufFile& file, std::string_view key) {
  if (file.find(key) == nullptr) return std::nullopt;
  const uint64_t id = file.get_uint(key);
  if (id > static_cast<uint64_t>(std::numeric_limits<int32_t>::max())) {
    throw Error(std::string(key) + " is " + std::to_string(id) + ", which is no token");
  }
  return static_cast<int32_t>(id);
}

std::vector<int32_t> read_token_types(const GgufFile& file, size_t n_tokens) {
  constexpr std::string_view kKey = "tokenizer.ggml.token_type";
  if (file.find(kKey) == nullptr) return std::vector<int32_t>(n_tokens, kTokenNormal);
  std::vector<int32_t> types;
  types.reserve(n_tokens);
  for (const int64_t type : file.get_int_array(kKey)) {
    // The tokenizer refuses what is no type; this only keeps a wide number from becoming a valid one.
    const bool fits = type >= 0 && type <= std::numeric_limits<int32_t>::max();
    types.push_back(fits ? static_cast<int32_t>(type) : -1);
  }
  return types;
}

}  // namespace

Vocabulary read_vocabulary(const GgufFile& file) {
  Vocabulary vocabulary;
  vocabulary.model = file.get_string("tokenizer.ggml.model");
  vocabulary.pre_tokenizer = file.get_string_or("tokenizer.ggml.pre", "");
  vocabulary.tokens = file.get_string_array("tokenizer.ggml.tokens");
  vocabulary.token_types = read_token_types(file, vocabulary.tokens.size());
  // Other tokenizer models have no merges; the tokenizer refuses those by name.
  if (file.find("tokenizer.ggml.merges") != nullptr || vocabulary.model == "gpt2") {
    vocabulary.merges = file.get_string_array("tokenizer.ggml.merges");
  }
  vocabulary.bos_id = read_token_id(file, "tokenizer.ggml.bos_token_id");
  vocabulary.eos_id = read_token_id(file, "tokenizer.ggml.eos_token_id");
  vocabulary.eot_id = read_token_id(file, "tokenizer.ggml.eot_token_id");
  vocabulary.eom_id = read_token_id(file, "tokenizer.ggml.eom_token_id");
  vocabulary.add_bos = file.get_bool_or("tokenizer.ggml.add_bos_token", false);
  vocabulary.add_eos = file.get_bool_or("tokenizer.ggml.add_eos_token", false);
  return vocabulary;
}

std::vector<int32_t> encode_prompt(const Tokenizer& tokenizer, std::string_view text, ControlTokens control) {
  std::vector<int32_t> ids = tokenizer.encode(text, control);
  if (tokenizer.add_bos() && (ids.empty() || ids.front() != tokenizer.bos_id())) {
    ids.insert(ids.begin(), *tokenizer.bos_id());
  }
  return ids;
}

std::vector<int32_t> end_tokens(const Tokenizer& tokenizer) {
  std::vector<int32_t> ids;
  for (int32_t id = 0; id < tokenizer.size(); ++id) {
    if (tokenizer.is_end_of_generation(id)) ids.push_back(id);
  }
  return ids;
}

}  // namespace quire
