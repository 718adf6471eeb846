#include "engine/vocabulary_writer.h"

#include <algorithm>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "text/pre_tokenizer.h"

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

void check_obstacles(const Vocabulary& vocabulary, bool is_phi3) {
  const auto refuse = [](const std::string& why) {
    throw Error("the tokenizer cannot be written as GGUF: " + why);
  };
  if (!vocabulary.gguf_obstacle.empty()) refuse(vocabulary.gguf_obstacle);
  for (const LiteralRule& rule : vocabulary.literals) {
    const std::string token(vocabulary.tokens[static_cast<size_t>(rule.id)]);
    if (rule.strip_left || (rule.strip_right && !is_phi3)) {
      refuse("it cannot say that the token '" + token + "' takes in the white space beside it");
    }
    if (rule.single_word) refuse("it cannot say that the token '" + token + "' stands between words only");
  }
}

std::vector<std::string> notes_of(const Vocabulary& vocabulary, bool is_phi3) {
  std::vector<std::string> notes;
  const auto has_step = [&](const std::vector<NormalStep>& steps, auto... kinds) {
    return std::ranges::any_of(steps, [&](const NormalStep& step) { return ((step.kind == kinds) || ...); });
  };
  using Kind = NormalStep::Kind;
  if (vocabulary.model == "gpt2" && vocabulary.rules &&
      vocabulary.rules->normalizer != pre_tokenizer_family(vocabulary.pre_tokenizer).normalizer) {
    notes.push_back(
        "GGUF cannot say that text is brought into NFC first, so text in other forms becomes other "
        "tokens");
  }
  if (vocabulary.model != "gpt2" && vocabulary.rules &&
      (has_step(vocabulary.rules->normalizer, Kind::kPrependOnce, Kind::kPrependFirst) ||
       has_step(vocabulary.rules->marking, Kind::kPrependOnce, Kind::kPrependFirst))) {
    notes.push_back(
        "in GGUF a space comes before every text, also before one that begins with a space and "
        "behind control tokens, where tokenizer.json may put none");
  }
  if (is_phi3 && vocabulary.model != "llama" &&
      std::ranges::any_of(vocabulary.literals, &LiteralRule::strip_right)) {
    notes.push_back("GGUF cannot say that control tokens take in the white space that follows");
  }
  const auto is_lost = [&](int32_t id) {
    return id != vocabulary.eos_id && id != vocabulary.eom_id && id != second_end(vocabulary);
  };
  for (const int32_t id : vocabulary.end_ids) {
    if (!is_lost(id)) continue;
    notes.push_back("GGUF has no key for a third token that ends a generation, so token " +
                    std::to_string(id) + " does so only where its text is a well-known one");
    break;
  }
  return notes;
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

std::vector<std::string> add_vocabulary(const Vocabulary& vocabulary, std::string_view architecture,
                                        uint64_t n_rows, MetadataBuilder& metadata) {
  const bool is_phi3 = architecture == "phi3";
  check_obstacles(vocabulary, is_phi3);
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
  return notes_of(vocabulary, is_phi3);
}

}  // namespace quire
