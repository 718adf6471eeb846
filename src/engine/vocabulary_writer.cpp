#include "engine/vocabulary_writer.h"

#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace quire {
namespace {

void add_id(const char* key, const std::optional<int32_t>& id, MetadataBuilder& metadata) {
  if (id) metadata.add(key, static_cast<uint32_t>(*id));
}

}  // namespace

void add_vocabulary(const Vocabulary& vocabulary, uint64_t n_rows, MetadataBuilder& metadata) {
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
  if (!vocabulary.pre_tokenizer.empty()) metadata.add_text("tokenizer.ggml.pre", vocabulary.pre_tokenizer);
  metadata.add_texts("tokenizer.ggml.tokens", tokens);
  metadata.add_array("tokenizer.ggml.token_type", std::span<const int32_t>(types));
  if (!vocabulary.merges.empty()) metadata.add_texts("tokenizer.ggml.merges", vocabulary.merges);
  add_id("tokenizer.ggml.bos_token_id", vocabulary.bos_id, metadata);
  add_id("tokenizer.ggml.eos_token_id", vocabulary.eos_id, metadata);
  add_id("tokenizer.ggml.eot_token_id", vocabulary.eot_id, metadata);
  add_id("tokenizer.ggml.eom_token_id", vocabulary.eom_id, metadata);
  metadata.add("tokenizer.ggml.add_bos_token", vocabulary.add_bos);
  metadata.add("tokenizer.ggml.add_eos_token", vocabulary.add_eos);
}

}  // namespace quire
