#include "engine/vocabulary_writer.h"

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace quire {
namespace {

void add_id(const char* key, const std::optional<int32_t>& id, MetadataBuilder& metadata) {
  if (id) metadata.add(key, static_cast<uint32_t>(*id));
}

// The second token that ends a generation, which GGUF keeps apart from eos.
std::optional<int32_t> second_end(const Vocabulary& vocabulary) {
  if (vocabulary.eot_id) return vocabulary.eot_id;
  for (const int32_t id : vocabulary.end_ids) {
    if (id != vocabulary.eos_id) return id;
  }
  return std::nullopt;
}

// What SentencePiece's models have beside their tokens.
void add_scores(const Vocabulary& vocabulary, uint64_t n_rows, MetadataBuilder& metadata) {
  const std::vector<double> scores =
      vocabulary.merges.empty() ? vocabulary.scores : scores_of_merges(vocabulary);
  std::vector<float> rounded(scores.begin(), scores.end());
  rounded.resize(n_rows, 0);
  metadata.add_array("tokenizer.ggml.scores", std::span<const float>(rounded));
  metadata.add("tokenizer.ggml.add_space_prefix", vocabulary.add_space_prefix);
  if (vocabulary.remove_extra_whitespaces) metadata.add("tokenizer.ggml.remove_extra_whitespaces", true);
}

}  // namespace

void add_vocabulary(const Vocabulary& vocabulary, uint64_t n_rows, MetadataBuilder& metadata) {
  if (!vocabulary.gguf_obstacle.empty()) {
    throw Error("the tokenizer cannot be written as GGUF: " + vocabulary.gguf_obstacle);
  }
  std::vector<std::string_view> tokens = vocabulary.tokens;
  std::vector<int32_t> types = vocabulary.token_types;
  if (tokens.size() > n_rows) {
    throw Error("the tokenizer has " + std::to_string(tokens.size()) + " tokens but the model embeds only " +
                std::to_string(n_rows));
  }
  const size_t n_padding = n_rows - tokens.size();
  std::vector<std::string> padding;
  for (size_t i = 0; i < n_padding; ++i) padding.push_back("[PAD" + std::to_string(i) + "]");
  tokens.insert(tokens.end(), padding.begin(), padding.end());
  types.resize(n_rows, kTokenUnused);

  metadata.add_text("tokenizer.ggml.model", vocabulary.model);
  const bool byte_level = vocabulary.model == "gpt2";
  if (byte_level) metadata.add_text("tokenizer.ggml.pre", vocabulary.pre_tokenizer);
  metadata.add_texts("tokenizer.ggml.tokens", tokens);
  metadata.add_array("tokenizer.ggml.token_type", std::span<const int32_t>(types));
  if (byte_level) {
    metadata.add_texts("tokenizer.ggml.merges", vocabulary.merges);
  } else {
    add_scores(vocabulary, n_rows, metadata);
  }
  add_id("tokenizer.ggml.bos_token_id", vocabulary.bos_id, metadata);
  add_id("tokenizer.ggml.eos_token_id", vocabulary.eos_id, metadata);
  add_id("tokenizer.ggml.eot_token_id", second_end(vocabulary), metadata);
  add_id("tokenizer.ggml.eom_token_id", vocabulary.eom_id, metadata);
  add_id("tokenizer.ggml.unknown_token_id", vocabulary.unk_id, metadata);
  add_id("tokenizer.ggml.padding_token_id", vocabulary.pad_id, metadata);
  metadata.add("tokenizer.ggml.add_bos_token", vocabulary.add_bos);
  metadata.add("tokenizer.ggml.add_eos_token", vocabulary.add_eos);
}

}  // namespace quire
