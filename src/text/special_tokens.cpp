#include "text/special_tokens.h"

#include <algorithm>

#include "base/error.h"
#include "text/one_line.h"
#include "text/unicode_form.h"

namespace quire {
namespace {

bool touches_word(std::string_view text, size_t start, size_t end) {
  const std::optional<char32_t> before = last_character(text.substr(0, start));
  const std::optional<char32_t> after = first_character(text.substr(end));
  return (before && is_word_character(*before)) || (after && is_word_character(*after));
}

// Where the white space before `start` begins, at `from` at the earliest.
size_t white_space_begin(std::string_view text, size_t from, size_t start) {
  return from + without_trailing_white_space(text.substr(from, start - from));
}

}  // namespace

void SpecialTokens::add(std::string_view text, int32_t id, const LiteralRule& rule) {
  if (text.empty()) throw Error("token " + std::to_string(id) + " is special but has no text");
  tokens_.push_back({std::string(text), id, rule});
  first_bytes_[static_cast<uint8_t>(text[0])] = true;
}

void SpecialTokens::finish() {
  std::sort(tokens_.begin(), tokens_.end(), [](const Token& a, const Token& b) { return a.text < b.text; });
  for (size_t i = 1; i < tokens_.size(); ++i) {
    if (tokens_[i].text != tokens_[i - 1].text) continue;
    throw Error("tokens " + std::to_string(tokens_[i - 1].id) + " and " + std::to_string(tokens_[i].id) +
                " are both '" + one_line(tokens_[i].text) + "'");
  }
}

SpecialTokens::Match SpecialTokens::find_within(std::string_view text, size_t from, TextPart part) const {
  if (tokens_.empty()) return {text.size(), 0, 0};
  for (size_t start = std::max(from, part.begin); start < part.end; ++start) {
    if (!first_bytes_[static_cast<uint8_t>(text[start])]) continue;
    const Token* token = longest_at(text.substr(0, part.end), start);
    if (token == nullptr) continue;
    size_t end = start + token->text.size();
    if (token->rule.single_word && touches_word(text, start, end)) {
      start = end - 1;  // what it covers is passed over, as in Hugging Face's tokenizers
      continue;
    }
    const size_t begin = token->rule.strip_left ? white_space_begin(text, from, start) : start;
    if (token->rule.strip_right) end += leading_white_space(text.substr(end));
    return {begin, end - begin, token->id};
  }
  return {text.size(), 0, 0};
}

// [low, high) are the tokens that begin with what was read so far. In a sorted range the one that is
// exactly this long, if there is one, comes first.
const SpecialTokens::Token* SpecialTokens::longest_at(std::string_view text, size_t start) const {
  const Token* best = nullptr;
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
    if (low->text.size() == depth + 1) best = &*low;
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
