// A regular expression of a tokenizer, run by PCRE2. Tokenizers are written for Oniguruma (Ruby's syntax);
// what PCRE2 would read otherwise is translated or refused by name, so that a match here is a match there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

struct pcre2_real_code_8;

namespace quire {

// The steps that all searches in one text may take together, however many pieces it was cut into.
class MatchBudget {
 public:
  explicit MatchBudget(size_t text_bytes);

  // False if that many are not left; then none are taken.
  bool pay(uint64_t n_steps);

 private:
  uint64_t left_;
};

// Immutable, cheap to copy, safe to use from many threads.
class Expression {
 public:
  struct Match {
    size_t begin;
    size_t end;
  };

  // An Error says what of the expression is not understood.
  explicit Expression(std::string_view pattern);

  // All matches in `text`, from left to right, without empty ones. Bytes that are not UTF-8 match nothing,
  // and what lies on one side of them is not seen from the other. An expression that needs too many steps is
  // an Error: the steps allowed grow with the text, so that no expression can hold a program up for long.
  // `budget` is that of the text that this one is a piece of.
  void find_all(std::string_view text, MatchBudget& budget, std::vector<Match>& matches) const;

  const std::string& pattern() const { return pattern_; }

 private:
  std::string pattern_;
  std::shared_ptr<const pcre2_real_code_8> code_;
};

// The pattern in PCRE2's syntax; an Error for what it cannot say.
std::string to_pcre2(std::string_view pattern);

}  // namespace quire
