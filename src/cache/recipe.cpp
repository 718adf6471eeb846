#include "cache/recipe.h"

#include <algorithm>
#include <charconv>
#include <string>
#include <vector>

#include "base/edit_distance.h"
#include "base/error.h"
#include "cache/index_settings.h"

namespace quire {

namespace {

constexpr size_t kMostSinks = 16;
constexpr size_t kMostFullRows = 64;
constexpr size_t kMostTail = size_t{1} << 30;

constexpr std::string_view kFrameNames[] = {"plain", "rotated", "calibrated", "centred"};

std::string nearest(std::string_view word, const std::vector<std::string_view>& known) {
  const auto closer = [&](std::string_view a, std::string_view b) {
    return edit_distance(word, a) < edit_distance(word, b);
  };
  return std::string(*std::min_element(known.begin(), known.end(), closer));
}

// At most 40 characters of what was given, so that an error stays a sentence.
std::string shown(std::string_view text) {
  constexpr size_t kMost = 40;
  return text.size() <= kMost ? std::string(text) : std::string(text.substr(0, kMost)) + "...";
}

std::vector<std::string_view> format_names() {
  std::vector<std::string_view> names;
  for (const FormatInfo& entry : kFormats) names.emplace_back(entry.name);
  for (int i = 0; i < kCodeCount; ++i) names.emplace_back(info(static_cast<Code>(i)).name);
  return names;
}

// The flagship's codes.
constexpr Code kQuireKeys = Code::kNested4;
constexpr Code kQuireValues = Code::kNested3;

// Self-Indexing as published: the group's mean query chooses, and what it chooses is read.
constexpr size_t kSelfIndexRows = 64;
constexpr IndexBudget kSelfIndexBudget = {0.075, 0, 0, 1, 0, true};

bool is_signvq(const SideFormat& side) { return side == SideFormat::of(Code::kSignVq); }

// What a code is published with, where settings do not say otherwise.
struct Defaults {
  size_t sink_tokens = 4;
  size_t tail_tokens = 64;
};

Defaults defaults_of(const SideFormat& keys) {
  // KIVI keeps a residual of 128 tokens and no sinks.
  if (keys.coded && std::string_view(keys.name()).starts_with("kivi")) return {0, 128};
  if (is_signvq(keys)) return {0, 0};
  return {};
}

// What lies between the commas outside parentheses.
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

// The settings of one recipe text, in the order given.
class SettingsParser {
 public:
  SettingsParser(std::string_view whole, Recipe& recipe)
      : whole_(whole), recipe_(recipe), index_([this](const std::string& what) { fail(what); }) {}

  void parse(std::string_view settings) {
    for (const std::string_view setting : split_at_commas(settings)) parse_one(setting);
  }

  void set_both(SideFormat format) { key_default_ = value_default_ = format; }
  // The flagship: settings of its selection may stand among the others.
  void set_quire() {
    key_default_ = SideFormat::of(kQuireKeys);
    value_default_ = SideFormat::of(kQuireValues);
    takes_index_settings_ = selects_ = true;
  }
  void set_selfindex() {
    key_default_ = value_default_ = SideFormat::of(Code::kSignVq);
    usual_full_rows_ = kSelfIndexRows;
    index_.set_usual(kSelfIndexBudget);
    takes_index_settings_ = selects_ = true;
  }

  // Turns what was said into the recipe.
  void finish() {
    const SideFormat keys = keys_.value_or(key_default_);
    const SideFormat values = values_.value_or(value_default_);
    recipe_.prompt_statistics = stats_.value_or(false) || is_signvq(keys);
    recipe_.full_rows = full_rows_.value_or(usual_full_rows_);
    check_statistics(keys, values);
    if (selects_) {
      if (!keys.coded || !has_index(keys.code)) {
        fail(std::string(
                 "select=sign needs keys with a sign plane (nested2, nested3, nested4, signvq), and k=") +
             keys.name() + " has none");
      }
      if (!values.coded)
        fail(std::string("select=sign reads coded values, and v=") + values.name() + " is exact");
      recipe_.index = index_.finish();
    }
    if (keys.coded || values.coded) {
      recipe_.coded = true;
      recipe_.keys = keys;
      recipe_.values = values;
      const Defaults defaults = defaults_of(keys);
      recipe_.sink_tokens = sink_.value_or(defaults.sink_tokens);
      recipe_.tail_tokens = tail_.value_or(defaults.tail_tokens);
      return;
    }
    if (sink_ || tail_ || recipe_.frame || stats_ || recipe_.full_rows > 0) {
      fail("sink=, tail=, frame=, stats= and full_rows= are for coded formats");
    }
    recipe_.key_format = keys.rows;
    recipe_.value_format = values.rows;
  }

 private:
  void check_statistics(const SideFormat& keys, const SideFormat& values) const {
    if (is_signvq(keys) && stats_ == false)
      fail("k=signvq is coded by the prompt's statistics, not stats=model");
    if (is_signvq(keys) && recipe_.frame)
      fail("k=signvq has a frame of its own, and frame= cannot change it");
    if (recipe_.full_rows > 0 && !recipe_.prompt_statistics) {
      fail("full_rows= are chosen by the prompt: it needs stats=prompt or k=signvq");
    }
    const bool rotated =
        recipe_.frame_of(keys) >= FrameKind::kCalibrated || recipe_.frame_of(values) == FrameKind::kCentred;
    if (stats_ == true && !is_signvq(keys) && !rotated) {
      fail("stats=prompt is for frame=calibrated and frame=centred, and no side has one");
    }
  }

  [[noreturn]] void fail(const std::string& what) const {
    throw Error("recipe '" + shown(whole_) + "': " + what);
  }

  void parse_one(std::string_view setting) {
    const size_t equals = setting.find('=');
    const std::string_view name = setting.substr(0, equals);
    const std::string_view value = equals == std::string_view::npos ? "" : setting.substr(equals + 1);
    if (equals == std::string_view::npos) {
      fail("'" + shown(setting) +
           "' is not a setting; k=, v=, sink=, tail=, frame=, stats=, full_rows= and select= are");
    }
    if (name == "k") {
      once(keys_, name) = parse_format(value);
    } else if (name == "v") {
      once(values_, name) = parse_format(value);
    } else if (name == "sink") {
      once(sink_, name) = parse_number(name, value, kMostSinks);
    } else if (name == "tail") {
      once(tail_, name) = parse_number(name, value, kMostTail);
    } else if (name == "frame") {
      once(recipe_.frame, name) = parse_frame(value);
    } else if (name == "stats") {
      if (value != "model" && value != "prompt")
        fail("stats= takes model or prompt, not '" + shown(value) + "'");
      once(stats_, name) = value == "prompt";
    } else if (name == "full_rows") {
      once(full_rows_, name) = parse_number(name, value, kMostFullRows);
    } else if (name == "select") {
      parse_selection(value);
    } else if (takes_index_settings_ && is_index_setting(name)) {
      index_.parse(name, value);
    } else if (is_index_setting(name)) {
      fail(std::string(name) + "= is a setting of quire(...), selfindex(...) and select=sign(...)");
    } else {
      fail("there is no setting '" + shown(name) + "'; did you mean '" +
           nearest(name, {"k", "v", "sink", "tail", "frame", "stats", "full_rows", "select"}) + "'?");
    }
  }

  void parse_selection(std::string_view text) {
    if (selects_) fail("select= is given twice");
    selects_ = true;
    const size_t open = text.find('(');
    if (text.substr(0, open) != "sign") fail("select= takes sign, not '" + shown(text) + "'");
    if (open == std::string_view::npos) return;
    if (!text.ends_with(')')) fail("the parenthesis of select=sign( is not closed");
    const std::string_view inner = text.substr(open + 1, text.size() - open - 2);
    if (inner.empty()) return;
    for (const std::string_view setting : split_at_commas(inner)) {
      const size_t equals = setting.find('=');
      const std::string_view name = setting.substr(0, equals);
      if (equals == std::string_view::npos || !is_index_setting(name)) {
        fail("'" + shown(setting) +
             "' is not a setting of select=sign; budget=, mass=, candidates=, dense= and queries= are");
      }
      index_.parse(name, setting.substr(equals + 1));
    }
  }

  template <typename T>
  std::optional<T>& once(std::optional<T>& setting, std::string_view name) const {
    if (setting) fail(std::string(name) + "= is given twice");
    return setting;
  }

  SideFormat parse_format(std::string_view name) const {
    if (const auto format = side_format_by_name(name)) return *format;
    fail("there is no format '" + shown(name) + "'; did you mean '" + nearest(name, format_names()) + "'?");
  }

  size_t parse_number(std::string_view name, std::string_view text, size_t most) const {
    size_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size() || value > most) {
      fail(std::string(name) + "= takes a number from 0 to " + std::to_string(most) + ", not '" +
           shown(text) + "'");
    }
    return value;
  }

  FrameKind parse_frame(std::string_view text) const {
    for (size_t i = 0; i < std::size(kFrameNames); ++i) {
      if (text == kFrameNames[i]) return static_cast<FrameKind>(i);
    }
    fail("frame= takes plain, rotated, calibrated or centred, not '" + shown(text) + "'");
  }

  std::string_view whole_;
  Recipe& recipe_;
  SideFormat key_default_ = SideFormat::exact(Format::kF16);
  SideFormat value_default_ = SideFormat::exact(Format::kF16);
  bool takes_index_settings_ = false;
  size_t usual_full_rows_ = 0;
  std::optional<bool> stats_;  // of the prompt
  std::optional<size_t> full_rows_;
  bool selects_ = false;
  IndexSettings index_;
  std::optional<SideFormat> keys_;
  std::optional<SideFormat> values_;
  std::optional<size_t> sink_;
  std::optional<size_t> tail_;
};

// NAME of a part NAME=..., empty where it is none.
std::string_view setting_name(std::string_view part) {
  const size_t equals = part.find('=');
  return equals == std::string_view::npos || part.find('(') < equals ? "" : part.substr(0, equals);
}

std::vector<RecipeInfo> list_recipes() {
  std::vector<RecipeInfo> all = {
      {"full", "every token, f16 keys and values unless k= and v= say otherwise"},
      {"quire",
       "k=nested4,v=nested3, of which a step reads the rows that the sign plane of the keys names; settings: "
       "budget=7.5% or N rows, or mass=0.9; candidates=1.5 (by mass 35%), dense=0 first layers read whole"},
      {"selfindex",
       "k=signvq,v=signvq as Self-Indexing KVCache (arXiv 2603.14224): full_rows=64, and the rows that the "
       "index names for the group's mean query; settings as of quire, and queries=max|mean"},
      {"k=FORMAT,v=FORMAT",
       "keys and values in the formats named; settings of coded formats: sink=, tail=, frame=, "
       "stats=model|prompt, full_rows=, select=sign(...) with the settings of quire"},
  };
  for (const FormatInfo& entry : kFormats)
    all.push_back({entry.name, std::string("every token: ") + entry.summary});
  for (int i = 0; i < kCodeCount; ++i) {
    const CodeInfo entry = info(static_cast<Code>(i));
    all.push_back({entry.name, std::string("coded: ") + entry.source});
  }
  return all;
}

}  // namespace

FrameKind Recipe::frame_of(const SideFormat& side) const {
  if (!side.coded) return FrameKind::kPlain;
  if (frame) return *frame;
  return info(side.code).wants_rotation ? FrameKind::kCalibrated : FrameKind::kPlain;
}

bool Recipe::needs_calibration() const {
  const bool measured = frame_of(keys) >= FrameKind::kCalibrated || frame_of(values) == FrameKind::kCentred;
  return coded && measured && !prompt_statistics;
}

std::string Recipe::text() const {
  if (!coded) {
    if (*this == Recipe{}) return "full";
    return std::string("k=") + info(key_format).name + ",v=" + info(value_format).name;
  }
  const Defaults defaults = defaults_of(keys);
  std::string settings;
  if (sink_tokens != defaults.sink_tokens) settings += ",sink=" + std::to_string(sink_tokens);
  if (tail_tokens != defaults.tail_tokens) settings += ",tail=" + std::to_string(tail_tokens);
  if (frame) settings += ",frame=" + std::string(kFrameNames[static_cast<size_t>(*frame)]);
  if (prompt_statistics && !is_signvq(keys)) settings += ",stats=prompt";
  const bool selfindex = index && is_signvq(keys) && is_signvq(values);
  if (full_rows != (selfindex ? kSelfIndexRows : 0)) settings += ",full_rows=" + std::to_string(full_rows);
  if (selfindex) {
    const std::string selection = index_settings_text(*index, kSelfIndexBudget);
    settings = (selection.empty() ? "" : "," + selection) + settings;
    return settings.empty() ? "selfindex" : "selfindex(" + settings.substr(1) + ")";
  }
  if (index) {
    const std::string selection = index_settings_text(*index, IndexBudget{});
    if (keys == SideFormat::of(kQuireKeys) && values == SideFormat::of(kQuireValues)) {
      settings = (selection.empty() ? "" : "," + selection) + settings;
      return settings.empty() ? "quire" : "quire(" + settings.substr(1) + ")";
    }
    settings += ",select=sign" + (selection.empty() ? "" : "(" + selection + ")");
  }
  if (!(keys == values)) return std::string("k=") + keys.name() + ",v=" + values.name() + settings;
  return settings.empty() ? keys.name() : std::string(keys.name()) + "(" + settings.substr(1) + ")";
}

Recipe Recipe::parse(std::string_view text) {
  Recipe recipe;
  SettingsParser parser(text, recipe);
  const size_t open = text.find('(');
  std::string_view name = text.substr(0, open);
  if (name.find('=') != std::string_view::npos) {
    parser.parse(text);
    parser.finish();
    return recipe;
  }
  if (open != std::string_view::npos && !text.ends_with(')')) {
    throw Error("recipe '" + shown(text) + "': the parenthesis is not closed");
  }
  if (const auto format = side_format_by_name(name)) {
    parser.set_both(*format);
  } else if (name == "quire") {
    parser.set_quire();
  } else if (name == "selfindex") {
    parser.set_selfindex();
  } else if (name != "full") {
    std::vector<std::string_view> known = format_names();
    known.insert(known.end(), {"full", "quire", "selfindex"});
    throw Error("there is no recipe '" + shown(text) + "'; did you mean '" + nearest(name, known) + "'?");
  }
  if (open != std::string_view::npos) {
    std::string_view inner = text.substr(open + 1);
    inner.remove_suffix(1);
    if (!inner.empty()) parser.parse(inner);
  }
  parser.finish();
  return recipe;
}

std::vector<Recipe> Recipe::parse_list(std::string_view text) {
  std::vector<std::string> texts;
  std::vector<std::string_view>
      names;  // of the settings of the last of them; empty when it is no list of settings
  for (const std::string_view part : split_at_commas(text)) {
    const std::string_view name = setting_name(part);
    const bool goes_on =
        !name.empty() && !names.empty() && std::find(names.begin(), names.end(), name) == names.end();
    if (goes_on) {
      texts.back().append(",").append(part);
    } else {
      texts.emplace_back(part);
      names.clear();
    }
    if (!name.empty()) names.push_back(name);
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
