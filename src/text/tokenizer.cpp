#include "text/tokenizer.h"

#include <algorithm>
#include <utility>

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
  const Literals& literals = control == ControlTokens::kParse ? special_ : user_defined_;
  TextPlace place = place_after(ids);
  for (size_t at = 0; at < bytes.size();) {
    const SpecialTokens::Match match = literals.raw.find(bytes, at);
    encode_segment(bytes.substr(at, match.start - at), literals, place, ids);
    if (match.size_bytes == 0) return;
    ids.push_back(match.id);
    place = TextPlace::kAfterLiteral;
    at = match.start + match.size_bytes;
  }
}

namespace {

// Of two matches the one that comes first, of those that start together the longer one.
SpecialTokens::Match first_of(const SpecialTokens::Match& a, const SpecialTokens::Match& b) {
  if (a.size_bytes == 0 || b.size_bytes == 0) return a.size_bytes == 0 ? b : a;
  if (a.start != b.start) return a.start < b.start ? a : b;
  return a.size_bytes >= b.size_bytes ? a : b;
}

}  // namespace

void Tokenizer::encode_append(std::string_view bytes, std::span<const TextPart> trusted,
                              std::vector<int32_t>& ids) const {
  if (bytes.size() > kMaxTextBytes) throw Error("a text of 2 GiB or more cannot be encoded in one piece");
  size_t n_passed = 0;  // parts that end before the place, or have no literal any more
  const auto find_trusted = [&](size_t at) -> SpecialTokens::Match {
    for (; n_passed < trusted.size(); ++n_passed) {
      const TextPart& part = trusted[n_passed];
      if (part.end <= at) continue;
      // Literals that are looked for in normalized text are found here as they stand.
      const SpecialTokens::Match match = first_of(special_.raw.find_within(bytes, at, part),
                                                  special_.normalized.find_within(bytes, at, part));
      if (match.size_bytes > 0) return match;
    }
    return {bytes.size(), 0, 0};
  };
  SpecialTokens::Match control = find_trusted(0);
  SpecialTokens::Match user_defined = user_defined_.raw.find(bytes, 0);
  TextPlace place = place_after(ids);
  for (size_t at = 0; at < bytes.size();) {
    if (control.size_bytes > 0 && control.start < at) control = find_trusted(at);
    if (user_defined.size_bytes > 0 && user_defined.start < at)
      user_defined = user_defined_.raw.find(bytes, at);
    const SpecialTokens::Match match = first_of(control, user_defined);
    const size_t end = match.size_bytes == 0 ? bytes.size() : match.start;
    encode_segment(bytes.substr(at, end - at), user_defined_, place, ids);
    if (match.size_bytes == 0) return;
    ids.push_back(match.id);
    place = TextPlace::kAfterLiteral;
    at = match.start + match.size_bytes;
  }
}

TextPlace Tokenizer::place_after(const std::vector<int32_t>& ids) const {
  if (ids.empty()) return TextPlace::kBegin;
  return is_literal(ids.back()) ? TextPlace::kAfterLiteral : TextPlace::kInside;
}

bool Tokenizer::is_literal(int32_t id) const {
  return is_control(id) || (in_range(id) && types_[static_cast<size_t>(id)] == kTokenUserDefined);
}

// Text between two literals.
void Tokenizer::encode_segment(std::string_view bytes, const Literals& literals, TextPlace place,
                               std::vector<int32_t>& ids) const {
  if (bytes.empty()) return;
  if (normalizer_.empty() && marking_.empty() && literals.normalized.empty()) {  // nothing is copied
    pre_tokenizer_.split(bytes, [&](std::string_view word) { model_->encode(word, ids); });
    return;
  }
  std::string text(bytes);
  normalizer_.apply(place, text);
  if (literals.normalized.empty()) return encode_words(std::move(text), place, ids);
  for (size_t at = 0; at < text.size();) {
    const SpecialTokens::Match match = literals.normalized.find(text, at);
    encode_words(text.substr(at, match.start - at), place, ids);
    if (match.size_bytes == 0) return;
    ids.push_back(match.id);
    place = TextPlace::kAfterLiteral;
    at = match.start + match.size_bytes;
  }
}

void Tokenizer::encode_words(std::string text, TextPlace place, std::vector<int32_t>& ids) const {
  marking_.apply(place, text);
  if (text.size() > 2 * kMaxTextBytes) throw Error("a text of 2 GiB or more cannot be encoded in one piece");
  pre_tokenizer_.split(text, [&](std::string_view word) { model_->encode(word, ids); });
}

std::string Tokenizer::decode(std::span<const int32_t> ids, bool with_control) const {
  std::string bytes;
  bool begins = true;
  for (const int32_t id : ids) {
    const std::string_view token = token_bytes(id);
    if (!with_control && is_control(id)) continue;
    bytes += begins ? first_token_bytes(id) : token;
    begins = false;
  }
  return bytes;
}

std::string_view Tokenizer::token_bytes(int32_t id) const {
  if (!in_range(id)) {
    throw Error("token id " + std::to_string(id) + " is outside the vocabulary of " + std::to_string(size()) +
                " tokens");
  }
  return bytes_[id];
}

std::string_view Tokenizer::first_token_bytes(int32_t id) const {
  std::string_view bytes = token_bytes(id);
  if (leading_space_ == LeadingSpace::kOneDropped && bytes.starts_with(' ')) bytes.remove_prefix(1);
  if (leading_space_ == LeadingSpace::kAllOfFirstTokenDropped) {
    bytes.remove_prefix(std::min(bytes.size(), bytes.find_first_not_of(' ')));
  }
  return bytes;
}

bool Tokenizer::is_end_of_generation(int32_t id) const {
  return std::find(end_of_generation_.begin(), end_of_generation_.end(), id) != end_of_generation_.end();
}

std::optional<int32_t> Tokenizer::find_control(std::string_view text) const {
  std::optional<int32_t> id = special_.raw.find_exact(text);
  if (!id) id = special_.normalized.find_exact(text);
  return id && is_control(*id) ? id : std::nullopt;
}

}  // namespace quire
