#include "cache/place_settings.h"

#include <array>
#include <charconv>
#include <cmath>
#include <utility>

#include "cache/recipe_parser.h"

namespace quire {

namespace {

constexpr uint64_t kMostBytes = uint64_t{1} << 50;
constexpr size_t kMostAhead = 4096;  // layers
constexpr std::pair<char, uint64_t> kUnits[] = {
    {'T', 1'000'000'000'000}, {'G', 1'000'000'000}, {'M', 1'000'000}, {'K', 1000}};
constexpr std::string_view kDevices[] = {"best", "io_uring", "threads"};  // in the order of PagePlace::Device

std::string bytes_text(uint64_t n_bytes) {
  for (const auto& [letter, unit] : kUnits) {
    if (n_bytes % unit == 0) return std::to_string(n_bytes / unit) + letter;
  }
  return std::to_string(n_bytes);
}

uint64_t parse_bytes(std::string_view name, std::string_view text, const SettingError& fail) {
  std::string_view digits = text;
  uint64_t unit = 1;
  for (const auto& [letter, bytes] : kUnits) {
    if (text.ends_with(letter)) unit = bytes;
  }
  if (unit > 1) digits.remove_suffix(1);
  uint64_t n = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), n);
  if (error != std::errc() || end != digits.data() + digits.size() || n == 0 || n > kMostBytes / unit) {
    fail(std::string(name) + "= takes a number of bytes from 1 to " +
         bytes_text(kMostBytes / 1'000'000'000'000 * 1'000'000'000'000) + ", such as 500M or 8G, not " +
         shown_in_quotes(text));
  }
  return n * unit;
}

std::string parse_path(std::string_view text, const SettingError& fail) {
  if (text.empty()) fail("path= of place=disk names no folder");
  for (const char c : text) {
    if (c < ' ' || c > '~' || c == '(' || c == ')' || c == ',') {
      fail("path= takes letters of ASCII but no commas and parentheses, not " + shown_in_quotes(text));
    }
  }
  return std::string(text);
}

PagePlace::Device parse_device(std::string_view text, const SettingError& fail) {
  for (size_t i = 0; i < std::size(kDevices); ++i) {
    if (text == kDevices[i]) return static_cast<PagePlace::Device>(i);
  }
  fail("device= takes best, io_uring or threads, not " + shown_in_quotes(text));
  return PagePlace::Device::kBest;
}

const char* settings_of(PagePlace::Kind kind) {
  return kind == PagePlace::Kind::kDisk ? "path=, size=, ahead=, cache= and device="
                                        : "size=, ahead= and cache=";
}

bool parse_setting(std::string_view name, std::string_view value, const SettingError& fail,
                   PagePlace& place) {
  const bool on_disk = place.kind == PagePlace::Kind::kDisk;
  if (name == "size") {
    place.size_bytes = parse_bytes(name, value, fail);
  } else if (name == "cache") {
    place.cache_bytes = parse_bytes(name, value, fail);
  } else if (name == "ahead") {
    place.ahead_layers = static_cast<size_t>(parse_setting_whole(fail, name, value, 0, kMostAhead));
  } else if (name == "path" && on_disk) {
    place.path = parse_path(value, fail);
  } else if (name == "device" && on_disk) {
    place.device = parse_device(value, fail);
  } else {
    return false;
  }
  return true;
}

}  // namespace

std::string place_text(const PagePlace& place) {
  if (!place.given()) return {};
  const PagePlace usual;
  std::string settings;
  const auto add = [&](const char* name, const std::string& value) {
    settings += std::string(settings.empty() ? "" : ",") + name + "=" + value;
  };
  const bool on_disk = place.kind == PagePlace::Kind::kDisk;
  if (on_disk) add("path", place.path);
  if (place.size_bytes != 0) add("size", bytes_text(place.size_bytes));
  if (place.ahead_layers != usual.ahead_layers) add("ahead", std::to_string(place.ahead_layers));
  if (place.cache_bytes != 0) add("cache", bytes_text(place.cache_bytes));
  if (place.device != usual.device) add("device", std::string(kDevices[static_cast<size_t>(place.device)]));
  return std::string(on_disk ? "place=disk" : "place=host") + (settings.empty() ? "" : "(" + settings + ")");
}

PagePlace parse_place(std::string_view text, const SettingError& fail) {
  const size_t open = text.find('(');
  const std::string_view name = text.substr(0, open);
  PagePlace place;
  if (name == "disk") place.kind = PagePlace::Kind::kDisk;
  if (name == "host") place.kind = PagePlace::Kind::kHost;
  if (!place.given() && name != "memory")
    fail("place= takes memory, host or disk(path=...), not " + shown_in_quotes(name));
  const std::string what = std::string("place=").append(name);
  if (open != std::string_view::npos) {
    if (!text.ends_with(')')) fail("the parenthesis of " + what + "( is not closed");
    const std::string_view inner = text.substr(open + 1, text.size() - open - 2);
    std::vector<std::string_view> names;
    for (const std::string_view setting : split_at_commas(inner)) {
      const size_t equals = setting.find('=');
      const std::string_view key = setting.substr(0, equals);
      for (const std::string_view other : names) {
        if (other == key) fail(std::string(key) + "= is given twice");
      }
      names.push_back(key);
      if (!place.given() || equals == std::string_view::npos ||
          !parse_setting(key, setting.substr(equals + 1), fail, place)) {
        fail(shown_in_quotes(setting) + " is not a setting of " + what +
             (place.given() ? std::string("; ") + settings_of(place.kind) + " are" : std::string()));
      }
    }
  }
  if (place.kind == PagePlace::Kind::kDisk && place.path.empty()) {
    fail("place=disk needs a folder for the rows: place=disk(path=FOLDER)");
  }
  return place;
}

std::string place_summary(PagePlace::Kind kind) {
  const std::string settings = std::string("; settings: ") + settings_of(kind);
  if (kind == PagePlace::Kind::kDisk) {
    return "behind any recipe that drops no rows: sealed pages lie in a nameless file in a folder" + settings;
  }
  return "behind any recipe that drops no rows: sealed pages lie in memory of the host, beside the cache's "
         "own" +
         settings;
}

}  // namespace quire
