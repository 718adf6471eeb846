#include "study/bench_modes.h"

#include <algorithm>
#include <charconv>

#include "base/error.h"

namespace quire {
namespace {

constexpr std::string_view kStandard = "standard";
constexpr std::string_view kMonarch = "monarch-v3";
constexpr std::string_view kBoth = "both";

// The shortest text that reads as the same number.
std::string number_text(double value) {
  char text[32];
  const std::to_chars_result end = std::to_chars(text, text + sizeof text, value);
  return {text, end.ptr};
}

std::string_view trimmed(std::string_view text) {
  while (text.starts_with(' ')) text.remove_prefix(1);
  while (text.ends_with(' ')) text.remove_suffix(1);
  return text;
}

// At the commas that stand outside of parentheses.
std::vector<std::string_view> split(std::string_view text) {
  std::vector<std::string_view> parts;
  int depth = 0;
  size_t first = 0;
  for (size_t i = 0; i <= text.size(); ++i) {
    if (i < text.size() && text[i] == '(') ++depth;
    if (i < text.size() && text[i] == ')') --depth;
    if (i < text.size() && (text[i] != ',' || depth > 0)) continue;
    parts.push_back(trimmed(text.substr(first, i - first)));
    first = i + 1;
  }
  return parts;
}

class ModeList {
 public:
  explicit ModeList(const MonarchFlags& flags) : flags_(flags) {}

  void add(std::string_view part) {
    const bool both = part == kBoth;
    if (!both && part != kStandard && part != kMonarch) {
      recipes_.append(recipes_.empty() ? "" : ",").append(part);
      return;
    }
    flush();
    if (both || part == kStandard) entries_.push_back({std::string(kStandard), Recipe{}});
    if (both || part == kMonarch) {
      entries_.push_back({std::string(kMonarch), Recipe::parse(monarch_recipe_text(flags_))});
    }
  }

  std::vector<BenchEntry> finish() {
    flush();
    return std::move(entries_);
  }

 private:
  // Recipes between two modes are read as one list, since a recipe of settings alone spans several parts.
  void flush() {
    if (recipes_.empty()) return;
    for (const Recipe& recipe : Recipe::parse_list(recipes_)) entries_.push_back({recipe.text(), recipe});
    recipes_.clear();
  }

  const MonarchFlags& flags_;
  std::string recipes_;
  std::vector<BenchEntry> entries_;
};

}  // namespace

std::string monarch_recipe_text(const MonarchFlags& flags) {
  return "monarch(window=" + std::to_string(flags.window_size) +
         ",max_hot=" + std::to_string(flags.max_hot_tokens) + ",page=" + std::to_string(flags.page_size) +
         ",promote=" + number_text(flags.promotion_threshold) +
         ",sticky=" + std::to_string(flags.sticky_threshold) +
         ",decay=" + number_text(flags.importance_decay) +
         ",initial_sticky=" + std::to_string(flags.initial_sticky_tokens) + ")";
}

std::vector<BenchEntry> parse_bench_modes(std::string_view text, const MonarchFlags& flags) {
  const std::vector<std::string_view> parts = split(text);
  if (std::any_of(parts.begin(), parts.end(), [](std::string_view part) { return part.empty(); })) {
    throw Error("--mode needs standard, monarch-v3, both or recipes, with commas between them");
  }
  ModeList list(flags);
  for (const std::string_view part : parts) list.add(part);
  return list.finish();
}

}  // namespace quire
