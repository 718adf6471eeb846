#include "cache/recipe_parser.h"

#include <algorithm>
#include <charconv>

#include "base/edit_distance.h"
#include "base/error.h"
#include "cache/place_settings.h"
#include "policy/retention.h"

namespace quire {

namespace {

constexpr size_t kMostSinks = 16;
constexpr size_t kMostFullRows = 64;
constexpr size_t kMostTail = size_t{1} << 30;
constexpr std::string_view kAxisKeys[] = {"keep", "select", "promote"};

std::string nearest(std::string_view word, const std::vector<std::string_view>& known) {
  const auto closer = [&](std::string_view a, std::string_view b) {
    return edit_distance(word, a) < edit_distance(word, b);
  };
  return std::string(*std::min_element(known.begin(), known.end(), closer));
}

std::vector<std::string_view> format_names() {
  std::vector<std::string_view> names;
  for (const FormatInfo& entry : kFormats) names.emplace_back(entry.name);
  for (int i = 0; i < kCodeCount; ++i) names.emplace_back(info(static_cast<Code>(i)).name);
  return names;
}

std::vector<std::string_view> recipe_names() {
  std::vector<std::string_view> names = format_names();
  names.emplace_back("full");
  for (const NamedRecipe& named : named_recipes()) names.emplace_back(named.name);
  return names;
}

// "window, log, h2o": the policies of an axis.
std::string policy_names(PolicyAxis axis) {
  std::string names;
  for (size_t i = 1; i < kPolicyCount; ++i) {
    const PolicyInfo& policy = info(static_cast<Policy>(i));
    if (policy.axis == axis) names += (names.empty() ? "" : ", ") + std::string(policy.name);
  }
  return names;
}

}  // namespace

std::vector<std::string_view> split_at_commas(std::string_view text) {
  std::vector<std::string_view> parts;
  size_t start = 0;
  int depth = 0;
  for (size_t i = 0; i <= text.size(); ++i) {
    if (i < text.size() && text[i] == '(') ++depth;
    if (i < text.size() && text[i] == ')') --depth;
    if (i < text.size() && (text[i] != ',' || depth > 0)) continue;
    parts.push_back(text.substr(start, i - start));
    start = i + 1;
  }
  return parts;
}

void RecipeParser::fail(const std::string& what) const {
  throw Error("recipe '" + shown(whole_) + "': " + what);
}

// Behind a named recipe a place may stand after a comma. The text before it.
std::string_view RecipeParser::take_place(std::string_view text) {
  const std::vector<std::string_view> parts = split_at_commas(text);
  const auto is_place = [](std::string_view part) { return part.starts_with("place="); };
  if (parts.size() < 2 || !std::all_of(parts.begin() + 1, parts.end(), is_place)) return text;
  for (size_t i = 1; i < parts.size(); ++i) parse_setting(parts[i]);
  return parts[0];
}

Recipe RecipeParser::parse() {
  std::string_view text = whole_;
  std::string_view name = text.substr(0, text.find('('));
  if (name.substr(0, name.find(',')).find('=') != std::string_view::npos) {
    parse_settings(text);
  } else {
    text = take_place(text);
    const size_t open = text.find('(');
    name = text.substr(0, open);
    if (open != std::string_view::npos && !text.ends_with(')')) fail("the parenthesis is not closed");
    parse_named(name);
    if (open != std::string_view::npos && open + 2 < text.size()) {
      parse_settings(text.substr(open + 1, text.size() - open - 2));
    }
  }
  finish();
  return recipe_;
}

void RecipeParser::parse_named(std::string_view name) {
  if (const auto format = side_format_by_name(name)) {
    key_default_ = value_default_ = *format;
  } else if (const NamedRecipe* named = named_recipe(name)) {
    set_named(*named);
  } else if (name != "full") {
    throw Error("there is no recipe '" + shown(whole_) + "'; did you mean '" + nearest(name, recipe_names()) +
                "'?");
  }
}

void RecipeParser::set_named(const NamedRecipe& named) {
  named_ = &named;
  key_default_ = named.keys;
  value_default_ = named.values;
  if (named.index) {
    selects_ = true;
    index_.set_usual(*named.index);
  }
  if (named.policy != Policy::kNone) {
    policies_[static_cast<size_t>(info(named.policy).axis)].emplace(named.policy, fail_);
  }
}

void RecipeParser::parse_settings(std::string_view settings) {
  for (const std::string_view setting : split_at_commas(settings)) parse_setting(setting);
}

void RecipeParser::parse_setting(std::string_view setting) {
  const size_t equals = setting.find('=');
  const std::string_view name = setting.substr(0, equals);
  // LogQuant's own name for it.
  if (setting == "partial" && parse_policy_setting(setting, "on")) return;
  if (equals == std::string_view::npos) {
    fail("'" + shown(setting) +
         "' is not a setting; k=, v=, sink=, tail=, frame=, stats=, full_rows=, keep=, select=, promote= and "
         "place= are");
  }
  const std::string_view value = setting.substr(equals + 1);
  if (name == "k") {
    once(keys_, name) = parse_format(value);
  } else if (name == "v") {
    once(values_, name) = parse_format(value);
  } else if (name == "frame") {
    once(recipe_.frame, name) = parse_frame(value);
  } else if (name == "stats") {
    if (value != "model" && value != "prompt")
      fail("stats= takes model or prompt, not '" + shown(value) + "'");
    once(stats_, name) = value == "prompt";
  } else if (name == "place") {
    once(place_, name) = parse_place(value, fail_);
  } else if (name == "select") {
    parse_selection(value);
  } else if (name == "keep") {
    parse_policy(PolicyAxis::kKeep, name, value);
  } else if (name == "promote" && (named_ == nullptr || named_->policy != Policy::kHotPages)) {
    parse_policy(PolicyAxis::kPromote, name, value);
  } else if (!parse_exact_rows(name, value) && !parse_policy_setting(name, value)) {
    fail("there is no setting '" + shown(name) + "'; did you mean '" +
         nearest(name, {"k", "v", "sink", "tail", "frame", "stats", "full_rows", "keep", "select", "promote",
                        "place"}) +
         "'?");
  }
}

bool RecipeParser::parse_exact_rows(std::string_view name, std::string_view value) {
  if (own_policy() != nullptr && own_policy()->takes(name)) return false;
  if (name == "sink") {
    once(sink_, name) = parse_number(name, value, kMostSinks);
  } else if (name == "tail" || (named_ != nullptr && name == named_->tail_name)) {
    once(tail_, name) = parse_number(name, value, kMostTail);
  } else if (name == "full_rows") {
    once(full_rows_, name) = parse_number(name, value, kMostFullRows);
  } else {
    return false;
  }
  return true;
}

// Of the named recipe; nullptr where it has none.
PolicySettings* RecipeParser::own_policy() {
  if (named_ == nullptr || named_->policy == Policy::kNone) return nullptr;
  return &*policies_[static_cast<size_t>(info(named_->policy).axis)];
}

// Settings of a named recipe's own policies.
bool RecipeParser::parse_policy_setting(std::string_view name, std::string_view value) {
  if (own_policy() != nullptr && own_policy()->takes(name)) {
    own_policy()->parse(name, value);
    return true;
  }
  if (!is_index_setting(name)) return false;
  if (named_ == nullptr || !named_->index) {
    fail(std::string(name) + "= is a setting of quire(...), selfindex(...) and select=sign(...)");
  }
  index_.parse(name, value);
  return true;
}

// The settings in the parentheses of "NAME(...)", if there are any: take(name, value) is false for one that
// is not known.
template <typename Take>
void RecipeParser::parse_inner(std::string_view what, std::string_view text, const std::string& names,
                               const Take& take) {
  const size_t open = text.find('(');
  if (open == std::string_view::npos) return;
  if (!text.ends_with(')')) fail("the parenthesis of " + std::string(what) + "( is not closed");
  const std::string_view inner = text.substr(open + 1, text.size() - open - 2);
  if (inner.empty()) return;
  for (const std::string_view setting : split_at_commas(inner)) {
    const size_t equals = setting.find('=');
    if (equals == std::string_view::npos || !take(setting.substr(0, equals), setting.substr(equals + 1))) {
      fail(std::string("'") + shown(setting) + "' is not a setting of " + std::string(what) + "; " + names +
           " are");
    }
  }
}

void RecipeParser::parse_selection(std::string_view text) {
  if (text.substr(0, text.find('(')) != "sign") return parse_policy(PolicyAxis::kSelect, "select", text);
  if (selects_ || policies_[static_cast<size_t>(PolicyAxis::kSelect)]) fail("select= is given twice");
  selects_ = true;
  parse_inner("select=sign", text, "budget=, mass=, candidates=, dense= and queries=",
              [&](std::string_view name, std::string_view value) {
                if (!is_index_setting(name)) return false;
                index_.parse(name, value);
                return true;
              });
}

void RecipeParser::parse_policy(PolicyAxis axis, std::string_view key, std::string_view text) {
  std::optional<PolicySettings>& settings = policies_[static_cast<size_t>(axis)];
  if (settings || (axis == PolicyAxis::kSelect && selects_)) fail(std::string(key) + "= is given twice");
  const Policy policy = policy_by_name(axis, text.substr(0, text.find('(')));
  if (policy == Policy::kNone) {
    fail(std::string(key) + "= takes " + (axis == PolicyAxis::kSelect ? "sign, " : "") + policy_names(axis) +
         ", not '" + shown(text) + "'");
  }
  settings.emplace(policy, fail_);
  parse_inner(std::string(key) + "=" + info(policy).name, text, policy_setting_names(policy),
              [&](std::string_view name, std::string_view value) {
                if (!settings->takes(name)) return false;
                settings->parse(name, value);
                return true;
              });
}

SideFormat RecipeParser::parse_format(std::string_view name) const {
  if (const auto format = side_format_by_name(name)) return *format;
  fail("there is no format '" + shown(name) + "'; did you mean '" + nearest(name, format_names()) + "'?");
}

size_t RecipeParser::parse_number(std::string_view name, std::string_view text, size_t most) const {
  size_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value > most) {
    fail(std::string(name) + "= takes a number from 0 to " + std::to_string(most) + ", not '" + shown(text) +
         "'");
  }
  return value;
}

FrameKind RecipeParser::parse_frame(std::string_view text) const {
  for (size_t i = 0; i < std::size(kFrameNames); ++i) {
    if (text == kFrameNames[i]) return static_cast<FrameKind>(i);
  }
  fail("frame= takes plain, rotated, calibrated or centred, not '" + shown(text) + "'");
}

PolicyChoice RecipeParser::choice_of(PolicyAxis axis) const {
  const std::optional<PolicySettings>& settings = policies_[static_cast<size_t>(axis)];
  return settings ? settings->choice() : PolicyChoice{};
}

std::string RecipeParser::policy_text(PolicyAxis axis) const {
  const PolicyChoice choice = choice_of(axis);
  return std::string(kAxisKeys[static_cast<size_t>(axis)]) + "=" +
         (choice.given() ? info(choice.policy).name : "");
}

void RecipeParser::finish() {
  const SideFormat keys = keys_.value_or(key_default_);
  const SideFormat values = values_.value_or(value_default_);
  recipe_.keep = choice_of(PolicyAxis::kKeep);
  recipe_.select = choice_of(PolicyAxis::kSelect);
  recipe_.promote = choice_of(PolicyAxis::kPromote);
  recipe_.prompt_statistics = stats_.value_or(false) || is_signvq(keys);
  recipe_.full_rows = full_rows_.value_or(named_ != nullptr ? named_->full_rows : 0);
  check_statistics(keys, values);
  if (selects_) {
    check_index(keys, values);
    recipe_.index = index_.finish();
  }
  check_keep(keys, values);
  check_policies(keys);
  recipe_.place = place_.value_or(PagePlace{});
  if (keys.coded || values.coded) {
    recipe_.coded = true;
    recipe_.keys = keys;
    recipe_.values = values;
    finish_coded(keys);
  } else {
    finish_exact(keys, values);
  }
  check_place();
}

void RecipeParser::check_place() const {
  if (!recipe_.place.given() || !recipe_.drops()) return;
  const std::string name = recipe_.place.kind == PagePlace::Kind::kDisk ? "place=disk" : "place=host";
  fail(name + " is for rows that stay, and " + policy_text(PolicyAxis::kKeep) +
       " drops those that would leave");
}

void RecipeParser::finish_coded(const SideFormat& keys) {
  const ExactDefaults defaults = exact_defaults(keys);
  const size_t usual_tail =
      named_ != nullptr && named_->tail_tokens ? *named_->tail_tokens : defaults.tail_tokens;
  recipe_.sink_tokens = sink_.value_or(defaults.sink_tokens);
  recipe_.tail_tokens = tail_.value_or(usual_tail);
  // The reserve is what stays exact.
  if (recipe_.keep.given()) recipe_.tail_tokens = 0;
}

void RecipeParser::finish_exact(const SideFormat& keys, const SideFormat& values) {
  const bool has_sinks = recipe_.keep.policy == Policy::kWindow;
  if (tail_ || recipe_.frame || stats_ || recipe_.full_rows > 0 || (sink_ && !has_sinks)) {
    fail("sink=, tail=, frame=, stats= and full_rows= are for coded formats");
  }
  if (sink_) recipe_.sink_tokens = *sink_;
  recipe_.key_format = keys.rows;
  recipe_.value_format = values.rows;
}

void RecipeParser::check_statistics(const SideFormat& keys, const SideFormat& values) const {
  if (is_signvq(keys) && stats_ == false)
    fail("k=signvq is coded by the prompt's statistics, not stats=model");
  if (is_signvq(keys) && recipe_.frame) fail("k=signvq has a frame of its own, and frame= cannot change it");
  if (recipe_.full_rows > 0 && !recipe_.prompt_statistics) {
    fail("full_rows= are chosen by the prompt: it needs stats=prompt or k=signvq");
  }
  const bool rotated =
      recipe_.frame_of(keys) >= FrameKind::kCalibrated || recipe_.frame_of(values) == FrameKind::kCentred;
  if (stats_ == true && !is_signvq(keys) && !rotated) {
    fail("stats=prompt is for frame=calibrated and frame=centred, and no side has one");
  }
}

void RecipeParser::check_index(const SideFormat& keys, const SideFormat& values) const {
  if (!keys.coded || !has_index(keys.code)) {
    fail(std::string("select=sign needs keys with a sign plane (nested2, nested3, nested4, signvq), and k=") +
         keys.name() + " has none");
  }
  if (!values.coded)
    fail(std::string("select=sign reads coded values, and v=") + values.name() + " is exact");
}

void RecipeParser::check_keep(const SideFormat& keys, const SideFormat& values) const {
  if (!recipe_.keep.given()) return;
  const std::string keep = policy_text(PolicyAxis::kKeep);
  if (recipe_.keep.policy != Policy::kLog && (keys.coded || values.coded)) {
    fail(keep + " drops rows one by one, and " + (keys.coded ? "k=" : "v=") +
         (keys.coded ? keys.name() : values.name()) + " codes whole pages");
  }
  if (tail_) fail(keep + " keeps newest rows of its own, and tail= is for recipes without keep=");
  if (recipe_.full_rows > 0) fail(keep + " and full_rows= would both choose the exact rows");
  if (is_partial(recipe_.keep) && !keys.coded) {
    fail("keep=log(partial=on) keeps keys exact beside their codes, and k=" + std::string(keys.name()) +
         " has none");
  }
  if (is_partial(recipe_.keep) && selects_) {
    fail("keep=log(partial=on) has exact keys, which select=sign does not score");
  }
  if (!recipe_.select.given()) return;
  const std::string select = policy_text(PolicyAxis::kSelect);
  if (!keys.coded && !values.coded) {
    fail(select + " chooses among rows that are all there, and " + keep + " drops some");
  }
  if (indexes_keys()) fail(select + " makes its index as rows come, and " + keep + " moves them");
}

bool RecipeParser::indexes_keys() const {
  return recipe_.select.policy == Policy::kQuest || recipe_.select.policy == Policy::kDoubleSparse;
}

void RecipeParser::check_policies(const SideFormat& keys) const {
  if (indexes_keys() && keys.coded) {
    fail(policy_text(PolicyAxis::kSelect) + " makes its index of exact keys, and k=" + keys.name() +
         " is coded");
  }
  if (recipe_.select.policy == Policy::kQuest && 64 % recipe_.select.number("page") != 0) {
    fail("page= of quest takes 4, 8, 16, 32 or 64 tokens, not " +
         std::to_string(recipe_.select.number("page")));
  }
  if (recipe_.keep.policy == Policy::kSnapKv && recipe_.keep.number("kernel") % 2 == 0) {
    fail("kernel= of snapkv is the same on both sides of a row, so it is odd, not " +
         std::to_string(recipe_.keep.number("kernel")));
  }
  if (!recipe_.promote.given()) return;
  const std::string promote = policy_text(PolicyAxis::kPromote);
  if (!selects_) fail(promote + " follows the rows that select=sign scores, and there is none");
  if (recipe_.keep.given()) {
    fail(promote + " follows pages by position, and " + policy_text(PolicyAxis::kKeep) + " moves rows");
  }
  if (recipe_.full_rows > 0) fail(promote + " and full_rows= would both choose rows kept beside the pages");
}

}  // namespace quire
