#include "text/normalizer.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "text/unicode_form.h"

namespace quire {
namespace {

// Replacements may double a text with every step. Honest ones make a few bytes of one.
constexpr size_t kMaxGrowth = 64;
constexpr size_t kAlwaysAllowedBytes = size_t{64} << 10;
constexpr size_t kMaxTextBytes = size_t{2} << 30;

void check_growth(size_t size_bytes, size_t max_bytes) {
  if (size_bytes <= max_bytes) return;
  throw Error("the tokenizer's normalizer makes more than " + std::to_string(max_bytes) +
              " bytes of this text");
}

void replace_text(std::string_view pattern, std::string_view content, size_t max_bytes, std::string& text) {
  size_t found = text.find(pattern);
  if (found == std::string::npos) return;
  std::string out;
  out.reserve(text.size() + text.size() / 2);
  size_t at = 0;
  for (; found != std::string::npos; found = text.find(pattern, at)) {
    out.append(text, at, found - at).append(content);
    check_growth(out.size(), max_bytes);
    at = found + pattern.size();
  }
  out.append(text, at);
  text = std::move(out);
}

void replace_matches(const Expression& expression, std::string_view content, MatchBudget& budget,
                     size_t max_bytes, std::string& text) {
  std::vector<Expression::Match> matches;
  expression.find_all(text, budget, matches);
  if (matches.empty()) return;
  std::string out;
  size_t at = 0;
  for (const Expression::Match& match : matches) {
    out.append(text, at, match.begin - at).append(content);
    check_growth(out.size(), max_bytes);
    at = match.end;
  }
  out.append(text, at);
  text = std::move(out);
}

void collapse_spaces(std::string& text) {
  std::string out;
  out.reserve(text.size());
  for (const char c : text) {
    if (c != ' ' || (!out.empty() && out.back() != ' ')) out += c;
  }
  if (!out.empty() && out.back() == ' ') out.pop_back();
  text = std::move(out);
}

bool is_prepended(NormalStep::Kind kind, TextPlace place) {
  if (kind == NormalStep::Kind::kPrependFirst) return place == TextPlace::kBegin;
  return place != TextPlace::kInside;
}

}  // namespace

Normalizer::Normalizer(std::span<const NormalStep> steps) {
  if (steps.size() > kMaxSteps) {
    throw Error("the tokenizer's normalizer has " + std::to_string(steps.size()) + " steps; at most " +
                std::to_string(kMaxSteps) + " are supported");
  }
  for (const NormalStep& step : steps) {
    const bool has_expression = step.kind == NormalStep::Kind::kReplaceExpression;
    steps_.push_back({step, has_expression ? std::optional<Expression>(step.pattern) : std::nullopt});
  }
}

void Normalizer::apply(TextPlace place, std::string& text) const {
  using Kind = NormalStep::Kind;
  const size_t max_bytes = std::min(kMaxTextBytes, std::max(kAlwaysAllowedBytes, kMaxGrowth * text.size()));
  MatchBudget budget(text.size());
  for (const auto& [step, expression] : steps_) {
    if (text.empty()) return;
    switch (step.kind) {
      case Kind::kNfc: text = to_unicode_form(text, UnicodeForm::kNfc); break;
      case Kind::kNfd: text = to_unicode_form(text, UnicodeForm::kNfd); break;
      case Kind::kNfkc: text = to_unicode_form(text, UnicodeForm::kNfkc); break;
      case Kind::kNfkd: text = to_unicode_form(text, UnicodeForm::kNfkd); break;
      case Kind::kLowercase: text = to_lower_case(text); break;
      case Kind::kReplaceText: replace_text(step.pattern, step.content, max_bytes, text); break;
      case Kind::kReplaceExpression:
        replace_matches(*expression, step.content, budget, max_bytes, text);
        break;
      case Kind::kPrepend:
        if (is_prepended(step.kind, place)) text.insert(0, step.content);
        break;
      case Kind::kPrependOnce:
      case Kind::kPrependFirst:
        if (is_prepended(step.kind, place) && !text.starts_with(step.content)) text.insert(0, step.content);
        break;
      case Kind::kStripLeft: text.erase(0, leading_white_space(text)); break;
      case Kind::kStripRight: text.resize(without_trailing_white_space(text)); break;
      case Kind::kCollapseSpaces: collapse_spaces(text); break;
    }
    check_growth(text.size(), max_bytes);
  }
}

}  // namespace quire
