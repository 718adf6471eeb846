#include "text/tokenizer.h"

#include <algorithm>

#include "base/error.h"

namespace quire {

std::vector<int32_t> Tokenizer::encode(std::string_view bytes, ControlTokens control) const {
  std::vector<int32_t> ids;
  ids.reserve(bytes.size() / 3 + 16);  // prose has about four bytes a token
  encode_append(bytes, control, ids);
  return ids;
}

void Tokenizer::encode_append(std::string_view bytes, ControlTokens control,
                              std::vector<int32_t>& ids) const {
  if (bytes.size() > kMaxTextBytes) throw Error("a text of 2 GiB or more cannot be encoded in one piece");
  const SpecialTokens& literals = control == ControlTokens::kParse ? special_ : user_defined_;
  for (size_t at = 0; at < bytes.size();) {
    const SpecialTokens::Match match = literals.find(bytes, at);
    encode_plain(bytes.substr(at, match.start - at), ids);
    if (match.size_bytes == 0) return;
    ids.push_back(match.id);
    at = match.start + match.size_bytes;
  }
}

void Tokenizer::encode_plain(std::string_view bytes, std::vector<int32_t>& ids) const {
  while (!bytes.empty()) {
    const size_t word_bytes = pre_tokenizer_.next_word(bytes);
    QUIRE_DCHECK(word_bytes > 0 && word_bytes <= bytes.size());
    encode_word(bytes.substr(0, word_bytes), ids);
    bytes.remove_prefix(word_bytes);
  }
}

void Tokenizer::encode_word(std::string_view word, std::vector<int32_t>& ids) const {
  if (pre_tokenizer_.ignores_merges()) {
    const int32_t whole = pieces_.find(word, keys());
    if (whole != PieceTable::kNone) {
      ids.push_back(whole);
      return;
    }
  }
  const size_t begin = ids.size();
  for (const char c : word) {
    const int32_t id = byte_ids_[static_cast<uint8_t>(c)];
    // Neighbours of a byte without a token meet before they merge, as in Hugging Face's tokenizers.
    if (id != PieceTable::kNone) ids.push_back(id);
  }
  ids.resize(begin + merges_.apply(ids.data() + begin, ids.size() - begin));
}

std::string Tokenizer::decode(std::span<const int32_t> ids, bool with_control) const {
  std::string bytes;
  for (const int32_t id : ids) {
    const std::string_view token = token_bytes(id);
    if (with_control || !is_control(id)) bytes += token;
  }
  return bytes;
}

std::string_view Tokenizer::token_bytes(int32_t id) const {
  if (!in_range(id)) {
    throw Error("token id " + std::to_string(id) + " is outside the vocabulary of " + std::to_string(size()) +
                " tokens");
  }
  return keys()[id];
}

bool Tokenizer::is_end_of_generation(int32_t id) const {
  return std::find(end_of_generation_.begin(), end_of_generation_.end(), id) != end_of_generation_.end();
}

std::optional<int32_t> Tokenizer::find_control(std::string_view text) const {
  const std::optional<int32_t> id = special_.find_exact(text);
  return id && is_control(*id) ? id : std::nullopt;
}

std::vector<uint8_t> Tokenizer::missing_bytes() const {
  std::vector<uint8_t> missing;
  for (size_t byte = 0; byte < byte_ids_.size(); ++byte) {
    if (byte_ids_[byte] == PieceTable::kNone) missing.push_back(static_cast<uint8_t>(byte));
  }
  return missing;
}

}  // namespace quire
