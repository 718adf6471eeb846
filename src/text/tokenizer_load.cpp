// From a file's vocabulary to the tables of the tokenizer, with every check that makes them safe to use.
#include <algorithm>
#include <initializer_list>

#include "base/checked.h"
#include "base/error.h"
#include "text/byte_alphabet.h"
#include "text/tokenizer.h"

namespace quire {
namespace {

// Control tokens that end a turn or a document in the families of the supported pre-tokenizers. Files
// name only one of them as eos: SmolLM2's says "<|im_end|>" and is silent on "<|endoftext|>".
constexpr std::string_view kEndTexts[] = {"<|im_end|>", "<|endoftext|>", "<|end_of_text|>",
                                          "<|eot_id|>", "<|eom_id|>",    "<|end|>"};

void check_supported(const Vocabulary& vocabulary) {
  if (vocabulary.model != "gpt2") {
    throw Error("tokenizer model '" + vocabulary.model +
                "' is not supported; supported is gpt2 (byte-level BPE) with the pre-tokenizers smollm, "
                "gpt-2, llama-bpe and qwen2");
  }
}

void check_sizes(const Vocabulary& vocabulary) {
  const size_t n_tokens = vocabulary.tokens.size();
  if (n_tokens == 0) throw Error("the vocabulary has no tokens");
  if (n_tokens > 0x7fffffff) throw Error("the vocabulary has more tokens than ids");
  if (vocabulary.token_types.size() != n_tokens) {
    throw Error("the vocabulary has " + std::to_string(n_tokens) + " tokens but " +
                std::to_string(vocabulary.token_types.size()) + " token types");
  }
  for (size_t id = 0; id < n_tokens; ++id) {
    const int32_t type = vocabulary.token_types[id];
    if (type >= kTokenNormal && type <= kTokenByte) continue;
    throw Error("token " + std::to_string(id) + " has the unknown type " + std::to_string(type));
  }
}

std::optional<int32_t> checked_id(const char* name, std::optional<int32_t> id, int32_t n_tokens) {
  if (id && (*id < 0 || *id >= n_tokens)) {
    throw Error(std::string(name) + " token id " + std::to_string(*id) + " is outside the vocabulary of " +
                std::to_string(n_tokens) + " tokens");
  }
  return id;
}

bool is_literal(int32_t type) { return type == kTokenControl || type == kTokenUserDefined; }

// Plain text may become these by merging; control, unknown and unused tokens never.
bool is_piece(int32_t type) {
  return type == kTokenNormal || type == kTokenByte || type == kTokenUserDefined;
}

}  // namespace

Tokenizer::Tokenizer(const Vocabulary& vocabulary) {
  check_supported(vocabulary);
  pre_tokenizer_ = PreTokenizer(vocabulary.pre_tokenizer);
  check_sizes(vocabulary);
  types_ = vocabulary.token_types;
  bos_id_ = checked_id("bos", vocabulary.bos_id, size());
  eos_id_ = checked_id("eos", vocabulary.eos_id, size());
  add_bos_ = vocabulary.add_bos;
  add_eos_ = vocabulary.add_eos;
  if (add_bos_ && !bos_id_) throw Error("the vocabulary asks for a bos token but names none");
  if (add_eos_ && !eos_id_) throw Error("the vocabulary asks for an eos token but names none");
  read_tokens(vocabulary);
  read_byte_tokens();
  read_special_tokens(vocabulary);
  read_merges(vocabulary);
  read_end_of_generation(vocabulary);
}

void Tokenizer::read_tokens(const Vocabulary& vocabulary) {
  uint64_t n_bytes = 0;
  for (const std::string_view token : vocabulary.tokens) {
    n_bytes = checked_add(n_bytes, token.size(), "the text of the vocabulary");
  }
  if (n_bytes > 0xffffffffu) throw Error("the text of the vocabulary is larger than 4 GiB");
  arena_.reserve(n_bytes);  // never grows: a token's bytes are at most as many as its text's
  offsets_.reserve(types_.size() + 1);
  offsets_.push_back(0);
  pieces_.reserve(types_.size());

  std::vector<int32_t> as_they_are;
  for (int32_t id = 0; id < size(); ++id) {
    const std::string_view text = vocabulary.tokens[static_cast<size_t>(id)];
    const int32_t type = types_[static_cast<size_t>(id)];
    const bool spelled = !is_literal(type) && append_alphabet_bytes(text, arena_);
    if (!spelled) arena_ += text;
    offsets_.push_back(static_cast<uint32_t>(arena_.size()));
    if (!is_piece(type) || text.empty()) continue;
    if (!spelled) {
      as_they_are.push_back(id);
      continue;
    }
    const int32_t holder = pieces_.insert(id, keys());
    if (holder != id) {
      throw Error("tokens " + std::to_string(holder) + " and " + std::to_string(id) + " are both '" +
                  std::string(text) + "'");
    }
  }
  // Second, so that a user-defined "  " never takes the place of the token that merges make.
  for (const int32_t id : as_they_are) pieces_.insert(id, keys());
}

// Bytes that cannot occur in UTF-8, or hardly do, are missing in real vocabularies; one that lacks
// printable ASCII or the newline is not byte-level.
void Tokenizer::read_byte_tokens() {
  for (size_t byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(byte);
    byte_ids_[byte] = pieces_.find({&c, 1}, keys());
    const bool needed = (byte >= 0x20 && byte < 0x7f) || byte == '\n';
    if (needed && byte_ids_[byte] == PieceTable::kNone) {
      throw Error("the vocabulary has no token for byte " + std::to_string(byte) +
                  ", thus it is not a byte-level one");
    }
  }
}

void Tokenizer::read_special_tokens(const Vocabulary& vocabulary) {
  for (int32_t id = 0; id < size(); ++id) {
    const int32_t type = types_[static_cast<size_t>(id)];
    if (!is_literal(type)) continue;
    const std::string_view text = vocabulary.tokens[static_cast<size_t>(id)];
    special_.add(text, id);
    if (type == kTokenUserDefined) user_defined_.add(text, id);
  }
  special_.finish();
  user_defined_.finish();
}

void Tokenizer::read_merges(const Vocabulary& vocabulary) {
  if (vocabulary.merges.size() >= MergeTable::kNoRank) throw Error("the vocabulary has too many merges");
  merges_.reserve(vocabulary.merges.size());
  std::string bytes;
  for (size_t rank = 0; rank < vocabulary.merges.size(); ++rank) {
    const std::string_view text = vocabulary.merges[rank];
    const auto refuse = [&](const char* reason) {
      throw Error("merge " + std::to_string(rank) + " '" + std::string(text) + "' " + reason);
    };
    const size_t space = text.find(' ');
    if (space == 0 || space == std::string_view::npos || space + 1 == text.size()) refuse("is not a pair");
    const auto append = [&](std::string_view part) {
      if (!append_alphabet_bytes(part, bytes)) bytes += part;
      return bytes.size();
    };
    bytes.clear();
    const size_t left_bytes = append(text.substr(0, space));
    append(text.substr(space + 1));
    const std::string_view whole = bytes;
    const int32_t left = pieces_.find(whole.substr(0, left_bytes), keys());
    const int32_t right = pieces_.find(whole.substr(left_bytes), keys());
    const int32_t merged = pieces_.find(whole, keys());
    if (left == PieceTable::kNone || right == PieceTable::kNone) refuse("joins a piece that is no token");
    if (merged == PieceTable::kNone) refuse("makes a piece that is no token");
    if (!merges_.insert(left, right, {static_cast<uint32_t>(rank), merged})) refuse("is there twice");
  }
}

void Tokenizer::read_end_of_generation(const Vocabulary& vocabulary) {
  const auto add = [&](std::optional<int32_t> id) {
    const auto& ids = end_of_generation_;
    if (id && std::find(ids.begin(), ids.end(), *id) == ids.end()) end_of_generation_.push_back(*id);
  };
  add(eos_id_);
  add(checked_id("eot", vocabulary.eot_id, size()));
  add(checked_id("eom", vocabulary.eom_id, size()));
  for (const std::string_view text : kEndTexts) add(find_control(text));
}

}  // namespace quire
