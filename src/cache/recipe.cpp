#include "cache/recipe.h"

#include <algorithm>
#include <string>
#include <vector>

#include "cache/named_recipes.h"
#include "cache/place_settings.h"
#include "cache/recipe_parser.h"

namespace quire {

namespace {

// NAME of a part NAME=..., empty where it is none.
std::string_view setting_name(std::string_view part) {
  const size_t equals = part.find('=');
  return equals == std::string_view::npos || part.find('(') < equals ? "" : part.substr(0, equals);
}

std::string policy_summary(Policy policy) {
  const PolicyInfo& entry = info(policy);
  std::string summary = entry.summary;
  if (*entry.source != 0) summary += std::string(" (") + entry.source + ")";
  const std::string usual = all_policy_settings_text(policy);
  return usual.empty() ? summary : summary + "; settings: " + usual;
}

// Of what a named recipe differs in from its policy alone.
std::string named_summary(const NamedRecipe& named) {
  if (named.policy == Policy::kNone) return named.summary;
  std::string summary = policy_summary(named.policy);
  if (named.keys.coded) summary += std::string("; k=") + named.keys.name() + ",v=" + named.values.name();
  if (named.tail_tokens) {
    summary += std::string(", ") + named.tail_name + "=" + std::to_string(*named.tail_tokens);
  }
  if (named.index) summary += ", and the settings of quire";
  if (named.index && named.policy == Policy::kHotPages) summary += ", whose budget counts cold rows alone";
  return summary;
}

std::vector<RecipeInfo> list_recipes() {
  std::vector<RecipeInfo> all = {{"full", "every token, f16 keys and values unless k= and v= say otherwise"}};
  for (const NamedRecipe& named : named_recipes()) all.push_back({named.name, named_summary(named)});
  all.push_back(
      {"k=FORMAT,v=FORMAT",
       "keys and values in the formats named; settings of coded formats: sink=4 (0 to 16), tail=64 (kivi: 0 "
       "and 128), frame=plain|rotated|centred|calibrated (the format's own), stats=model|prompt, "
       "full_rows=0, select=sign(...) with the settings of quire; of all: the policies below"});
  constexpr const char* kKeys[] = {"keep=", "select=", "promote="};
  for (size_t i = 1; i < kPolicyCount; ++i) {
    const auto policy = static_cast<Policy>(i);
    all.push_back({std::string(kKeys[static_cast<size_t>(info(policy).axis)]) + info(policy).name,
                   std::string("as in the recipe ") + info(policy).recipe});
  }
  all.push_back({"place=host", place_summary(PagePlace::Kind::kHost)});
  all.push_back({"place=disk(path=...)", place_summary(PagePlace::Kind::kDisk)});
  for (const FormatInfo& entry : kFormats)
    all.push_back({entry.name, std::string("every token: ") + entry.summary});
  for (int i = 0; i < kCodeCount; ++i) {
    const CodeInfo entry = info(static_cast<Code>(i));
    all.push_back({entry.name, std::string("coded: ") + entry.source});
  }
  return all;
}

// What differs from `usual`, each with a comma before it.
std::string exact_rows_text(const Recipe& recipe, const ExactDefaults& usual, const char* tail_name) {
  const bool has_sinks = recipe.coded || recipe.keep.policy == Policy::kWindow;
  std::string text;
  if (has_sinks && recipe.sink_tokens != usual.sink_tokens)
    text += ",sink=" + std::to_string(recipe.sink_tokens);
  if (recipe.coded && !recipe.keep.given() && recipe.tail_tokens != usual.tail_tokens) {
    text += std::string(",") + tail_name + "=" + std::to_string(recipe.tail_tokens);
  }
  return text;
}

std::string frame_text(const Recipe& recipe, size_t usual_full_rows) {
  std::string text;
  if (recipe.frame) text += ",frame=" + std::string(frame_name(*recipe.frame));
  if (recipe.prompt_statistics && !is_signvq(recipe.keys)) text += ",stats=prompt";
  if (recipe.full_rows != usual_full_rows) text += ",full_rows=" + std::to_string(recipe.full_rows);
  return text;
}

std::string policy_text(const char* key, const PolicyChoice& choice) {
  if (!choice.given()) return "";
  const std::string settings = policy_settings_text(choice);
  return std::string(",") + key + info(choice.policy).name + (settings.empty() ? "" : "(" + settings + ")");
}

std::string comma(std::string text) {
  if (!text.empty()) text.insert(0, 1, ',');
  return text;
}

std::string with_settings(std::string name, const std::string& settings) {
  return settings.empty() ? name : name + "(" + settings.substr(1) + ")";
}

std::string named_text(const Recipe& recipe, const NamedRecipe& named) {
  std::string settings;
  if (recipe.index) settings += comma(index_settings_text(*recipe.index, *named.index));
  for (const PolicyChoice* choice : {&recipe.keep, &recipe.select, &recipe.promote}) {
    if (choice->given()) settings += comma(policy_settings_text(*choice));
  }
  ExactDefaults usual = exact_defaults(recipe.keys);
  usual.tail_tokens = named.tail_tokens.value_or(usual.tail_tokens);
  settings += exact_rows_text(recipe, usual, named.tail_name) + frame_text(recipe, named.full_rows);
  return with_settings(named.name, settings);
}

}  // namespace

std::string_view frame_name(FrameKind kind) { return kFrameNames[static_cast<size_t>(kind)]; }

Recipe Recipe::without_place() const {
  Recipe other = *this;
  other.place = {};
  return other;
}

FrameKind Recipe::frame_of(const SideFormat& side) const {
  if (!side.coded) return FrameKind::kPlain;
  if (frame) return *frame;
  return info(side.code).wants_rotation ? FrameKind::kCalibrated : FrameKind::kPlain;
}

bool Recipe::calibrates_frames() const {
  const bool measured = frame_of(keys) >= FrameKind::kCalibrated || frame_of(values) == FrameKind::kCentred;
  return coded && measured && !prompt_statistics;
}

bool Recipe::needs_calibration() const {
  return calibrates_frames() || (select.policy == Policy::kDoubleSparse && select.number("from") == 0);
}

std::string Recipe::text() const {
  if (place.given()) return without_place().text() + "," + place_text(place);
  if (*this == Recipe{}) return "full";
  if (const NamedRecipe* named = name_of(*this)) return named_text(*this, *named);
  std::string settings = exact_rows_text(*this, exact_defaults(keys), "tail") + frame_text(*this, 0);
  settings += policy_text("keep=", keep) + policy_text("select=", select);
  if (index) {
    const std::string selection = index_settings_text(*index, IndexBudget{});
    settings += ",select=sign" + (selection.empty() ? "" : "(" + selection + ")");
  }
  settings += policy_text("promote=", promote);
  if (coded && keys == values) return with_settings(keys.name(), settings);
  return std::string("k=") + key_side().name() + ",v=" + value_side().name() + settings;
}

Recipe Recipe::parse(std::string_view text) { return RecipeParser(text).parse(); }

std::vector<Recipe> Recipe::parse_list(std::string_view text) {
  std::vector<std::string> texts;
  std::vector<std::string_view>
      names;  // of the settings of the last of them; empty when it is no list of settings
  for (const std::string_view part : split_at_commas(text)) {
    const std::string_view name = setting_name(part);
    const bool goes_on =
        !name.empty() && !names.empty() && std::find(names.begin(), names.end(), name) == names.end();
    const bool is_place = name == "place" && !texts.empty();
    if (goes_on || is_place) {
      texts.back().append(",").append(part);
    } else {
      texts.emplace_back(part);
      names.clear();
    }
    // Behind a named recipe's place begins the next one.
    if (!name.empty() && !(is_place && names.empty())) names.push_back(name);
  }
  std::vector<Recipe> recipes;
  for (const std::string& recipe : texts) recipes.push_back(parse(recipe));
  return recipes;
}

std::span<const RecipeInfo> known_recipes() {
  static const std::vector<RecipeInfo> all = list_recipes();
  return all;
}

}  // namespace quire
