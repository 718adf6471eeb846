#include "text/pre_tokenizer.h"

#include <algorithm>

namespace quire {
namespace {

struct Part {
  size_t begin;
  size_t end;
  bool is_match;
};

// Matches and what lies between them; `inverted` swaps the two.
void list_parts(size_t size_bytes, std::span<const Expression::Match> matches, bool inverted,
                std::vector<Part>& parts) {
  parts.clear();
  size_t at = 0;
  for (const Expression::Match& match : matches) {
    if (match.begin > at) parts.push_back({at, match.begin, inverted});
    parts.push_back({match.begin, match.end, !inverted});
    at = match.end;
  }
  if (at < size_bytes) parts.push_back({at, size_bytes, inverted});
}

// Joins parts as the behavior says: `parts` are the pieces then.
void join_parts(SplitBehavior behavior, std::vector<Part>& parts) {
  size_t n = 0;
  bool match_before = false;
  for (const Part& part : parts) {
    bool joins = false;
    switch (behavior) {
      case SplitBehavior::kIsolated: break;
      case SplitBehavior::kRemoved:
        if (part.is_match) continue;
        break;
      case SplitBehavior::kContiguous: joins = n > 0 && part.is_match == match_before; break;
      case SplitBehavior::kMergedWithPrevious: joins = n > 0 && part.is_match && !match_before; break;
      case SplitBehavior::kMergedWithNext: joins = n > 0 && !part.is_match && match_before; break;
    }
    match_before = part.is_match;
    if (joins) {
      parts[n - 1].end = part.end;
    } else {
      parts[n++] = part;
    }
  }
  parts.resize(n);
}

std::optional<WordScanner> find_scanner(std::span<const SplitStep> steps) {
  using Kind = WordScanner::Kind;
  constexpr std::pair<std::string_view, Kind> kScanners[] = {{"gpt-2", Kind::kGpt2},
                                                             {"smollm", Kind::kSmolLm},
                                                             {"llama-bpe", Kind::kLlama3},
                                                             {"qwen2", Kind::kQwen2}};
  for (const auto& [name, kind] : kScanners) {
    if (std::ranges::equal(pre_tokenizer_family(name).steps, steps)) return WordScanner(kind);
  }
  return std::nullopt;
}

}  // namespace

PreTokenizer::PreTokenizer(std::span<const SplitStep> steps) : scanner_(find_scanner(steps)) {
  if (scanner_) return;
  for (const SplitStep& step : steps)
    steps_.push_back({Expression(step.expression), step.behavior, step.inverted});
}

std::vector<std::string_view> PreTokenizer::cut(std::string_view text) const {
  std::vector<std::string_view> pieces;
  if (!text.empty()) pieces.push_back(text);
  std::vector<std::string_view> smaller;
  std::vector<Expression::Match> matches;
  std::vector<Part> parts;
  MatchBudget budget(text.size());
  for (const Step& step : steps_) {
    smaller.clear();
    for (const std::string_view piece : pieces) {
      step.expression.find_all(piece, budget, matches);
      list_parts(piece.size(), matches, step.inverted, parts);
      join_parts(step.behavior, parts);
      for (const Part& part : parts) smaller.push_back(piece.substr(part.begin, part.end - part.begin));
    }
    pieces.swap(smaller);
  }
  return pieces;
}

}  // namespace quire
