// Runs the steps that change a text before it is cut into words.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/expression.h"
#include "text/text_rules.h"

namespace quire {

// What precedes a text: it decides whether a space is put before it.
enum class TextPlace : uint8_t { kBegin, kAfterLiteral, kInside };

// Immutable, safe to use from many threads.
class Normalizer {
 public:
  Normalizer() = default;

  // Throws Error for an expression that is not understood, and for more than kMaxSteps steps.
  explicit Normalizer(std::span<const NormalStep> steps);

  bool empty() const { return steps_.empty(); }

  // A text that grows beyond 64 times its size is an Error (up to 64 KiB it may), as is one beyond 2 GiB.
  void apply(TextPlace place, std::string& text) const;

  static constexpr size_t kMaxSteps = 128;

 private:
  struct Step {
    NormalStep step;
    std::optional<Expression> expression;
  };

  std::vector<Step> steps_;
};

}  // namespace quire
