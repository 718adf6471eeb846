#include "engine/vocabulary_reader.h"

#include <algorithm>
#include <filesystem>
#include <limits>
#include <string>

#include "base/error.h"
#include "text/pre_tokenizer.h"
#include "text/tokenizer_json.h"

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

// Phi-3's control tokens take in the white space that follows; GGUF has no key for that, llama.cpp knows it
// by name.
std::vector<LiteralRule> phi3_literals(const Vocabulary& vocabulary) {
  constexpr std::string_view kPlain[] = {"<unk>", "<s>", "<|endoftext|>"};
  std::vector<LiteralRule> rules;
  for (size_t id = 0; id < std::min(vocabulary.tokens.size(), vocabulary.token_types.size()); ++id) {
    const int32_t type = vocabulary.token_types[id];
    const bool literal = type == kTokenControl || type == kTokenUserDefined;
    if (!literal || std::ranges::find(kPlain, vocabulary.tokens[id]) != std::end(kPlain)) continue;
    LiteralRule rule;
    rule.id = static_cast<int32_t>(id);
    rule.strip_right = true;
    rules.push_back(rule);
  }
  return rules;
}

// What the kind of model wants where the file is silent, as in llama.cpp.
void read_flags(const GgufFile& file, Vocabulary& vocabulary) {
  const bool is_llama = vocabulary.model == "llama";
  const bool is_t5 = vocabulary.model == "t5";
  bool adds_bos = is_llama;
  if (vocabulary.model == "gpt2") adds_bos = pre_tokenizer_family(vocabulary.pre_tokenizer).adds_bos;
  vocabulary.add_bos =
      file.get_bool_or("tokenizer.ggml.add_bos_token", adds_bos && vocabulary.bos_id.has_value());
  vocabulary.add_eos =
      file.get_bool_or("tokenizer.ggml.add_eos_token", is_t5 && vocabulary.eos_id.has_value());
  vocabulary.add_space_prefix = file.get_bool_or("tokenizer.ggml.add_space_prefix", is_llama || is_t5);
  vocabulary.remove_extra_whitespaces =
      file.get_bool_or("tokenizer.ggml.remove_extra_whitespaces", false) && is_t5;
  constexpr std::string_view kReplacements = "tokenizer.ggml.precompiled_charsmap";
  if ((is_llama || is_t5) && file.find(kReplacements) != nullptr &&
      !file.get_int_array(kReplacements).empty()) {
    throw Error(std::string(kReplacements).append(", a table of replacements, is not supported"));
  }
  if (is_llama && file.get_string_or("general.architecture", "") == "phi3") {
    vocabulary.literals = phi3_literals(vocabulary);
  }
}

OwnedVocabulary read_gguf_vocabulary(const GgufFile& file) {
  OwnedVocabulary vocabulary;
  vocabulary.model = file.get_string("tokenizer.ggml.model");
  vocabulary.pre_tokenizer = file.get_string_or("tokenizer.ggml.pre", "");
  vocabulary.tokens = file.get_string_array("tokenizer.ggml.tokens");
  vocabulary.token_types = read_token_types(file, vocabulary.tokens.size());
  if (vocabulary.model == "gpt2") {
    vocabulary.merges = file.get_string_array("tokenizer.ggml.merges");
  } else if (file.find("tokenizer.ggml.scores") != nullptr) {  // others are refused by name, by the tokenizer
    const std::vector<float> scores = file.get_float_array("tokenizer.ggml.scores");
    vocabulary.scores.assign(scores.begin(), scores.end());
  }
  vocabulary.bos_id = read_token_id(file, "tokenizer.ggml.bos_token_id");
  vocabulary.eos_id = read_token_id(file, "tokenizer.ggml.eos_token_id");
  vocabulary.eot_id = read_token_id(file, "tokenizer.ggml.eot_token_id");
  vocabulary.eom_id = read_token_id(file, "tokenizer.ggml.eom_token_id");
  vocabulary.pad_id = read_token_id(file, "tokenizer.ggml.padding_token_id");
  if (vocabulary.model != "gpt2") vocabulary.unk_id = read_token_id(file, "tokenizer.ggml.unknown_token_id");
  read_flags(file, vocabulary);
  return vocabulary;
}

}  // namespace

OwnedVocabulary read_vocabulary(const GgufFile& file) {
  std::error_code ignored;
  if (std::filesystem::is_directory(file.path(), ignored)) return read_tokenizer_folder(file.path());
  return read_gguf_vocabulary(file);
}

Tokenizer load_tokenizer(const GgufFile& file) {
  const OwnedVocabulary vocabulary = read_vocabulary(file);
  try {
    return Tokenizer(vocabulary);
  } catch (const Error& error) {
    throw Error(file.path() + ": " + error.what());
  }
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
