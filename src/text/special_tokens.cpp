#include "text/special_tokens.h"

#include <algorithm>

#include "base/error.h"

namespace quire {

void SpecialTokens::add(std::string_view text, int32_t id) {
  if (text.empty()) throw Error("token " + std::to_string(id) + " is special but has no text");
  tokens_.push_back({std::string(text), id});
  first_bytes_[static_cast<uint8_t>(text[0])] = true;
}

void SpecialTokens::finish() {
  std::sort(tokens_.begin(), tokens_.end(), [](const Token& a, const Token& b) { return a.text < b.text; });
  for (size_t i = 1; i < tokens_.size(); ++i) {
    if (tokens_[i].text != tokens_[i - 1].text) continue;
    throw Error("tokens " + std::to_string(tokens_[i - 1].id) + " and " + std::to_string(tokens_[i].id) +
                " are both '" + tokens_[i].text + "'");
  }
}

SpecialTokens::Match SpecialTokens::find(std::string_view text, size_t from) const {
  if (tokens_.empty()) return {text.size(), 0, 0};
  for (size_t start = from; start < text.size(); ++start) {
    if (!first_bytes_[static_cast<uint8_t>(text[start])]) continue;
    const Match match = longest_at(text, start);
    if (match.size_bytes > 0) return match;
  }
  return {text.size(), 0, 0};
}

// [low, high) are the tokens that begin with what was read so far. In a sorted range the one that is
// exactly this long, if there is one, comes first.
SpecialTokens::Match SpecialTokens::longest_at(std::string_view text, size_t start) const {
  Match best{start, 0, 0};
  auto low = tokens_.begin();
  auto high = tokens_.end();
  for (size_t depth = 0; start + depth < text.size(); ++depth) {
    const auto byte = static_cast<uint8_t>(text[start + depth]);
    // A token that ends here sorts before any byte.
    const auto byte_at = [depth](const Token& t) {
      return t.text.size() > depth ? static_cast<int>(static_cast<uint8_t>(t.text[depth])) : -1;
    };
    low = std::partition_point(low, high, [&](const Token& t) { return byte_at(t) < byte; });
    high = std::partition_point(low, high, [&](const Token& t) { return byte_at(t) <= byte; });
    if (low == high) break;
    if (low->text.size() == depth + 1) best = {start, depth + 1, low->id};
  }
  return best;
}

std::optional<int32_t> SpecialTokens::find_exact(std::string_view text) const {
  const auto before = [](const Token& t, std::string_view wanted) { return t.text < wanted; };
  const auto found = std::lower_bound(tokens_.begin(), tokens_.end(), text, before);
  if (found == tokens_.end() || found->text != text) return std::nullopt;
  return found->id;
}

}  // namespace quire
