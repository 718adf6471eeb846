// What happens to a text before words become tokens and after tokens became text, as plain data.
// tokenizer.json spells it out; for GGUF it follows from the kind of the model.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace quire {

constexpr std::string_view kSpaceMark = "\xE2\x96\x81";  // U+2581, SentencePiece's

// One step of the normalizer. Every step works on the text between two literal tokens; an empty one stays
// empty.
struct NormalStep {
  enum class Kind : uint8_t {
    kNfc,
    kNfd,
    kNfkc,
    kNfkd,
    kLowercase,
    kReplaceText,        // every `pattern` by `content`
    kReplaceExpression,  // every match of the regular expression `pattern` by `content`, which is plain text
    kPrepend,            // `content` before the text
    kPrependOnce,        // the same unless the text begins with `content`
    kPrependFirst,       // as kPrependOnce, where nothing precedes, not even a literal token
    kStripLeft,          // white space at the start goes
    kStripRight,
    kCollapseSpaces,  // SentencePiece's remove_extra_whitespaces: runs become one space, the ends none
  };
  Kind kind = Kind::kNfc;
  std::string pattern = {};
  std::string content = {};

  bool operator==(const NormalStep&) const = default;
};

// What becomes of the matches of a split; the text between two matches is always a piece.
enum class SplitBehavior : uint8_t {
  kIsolated,            // a match is a piece
  kRemoved,             // a match is left out
  kContiguous,          // matches that touch are one piece
  kMergedWithPrevious,  // a match is the end of the piece before it
  kMergedWithNext,      // a match is the start of the piece after it
};

// One cut of every piece that the step before made, by a regular expression.
struct SplitStep {
  std::string expression = {};
  SplitBehavior behavior = SplitBehavior::kIsolated;
  bool inverted = false;  // what lies between the matches counts as the matches

  bool operator==(const SplitStep&) const = default;
};

// What decoding leaves out at the start of a text.
enum class LeadingSpace : uint8_t { kKept, kOneDropped, kAllOfFirstTokenDropped };

struct TextRules {
  std::vector<NormalStep> normalizer = {};
  std::vector<NormalStep> marking = {};  // after it, and after literals that are found in normalized text
  std::vector<SplitStep> splits = {};
  std::string space_mark = {};  // spelled in tokens where the text has a space ("▁"); empty: no such mark
  LeadingSpace leading_space = LeadingSpace::kKept;
};

}  // namespace quire
