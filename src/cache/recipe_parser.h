// Reads the text of one recipe. Internal to the room.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cache/index_settings.h"
#include "cache/named_recipes.h"
#include "cache/policy_settings.h"
#include "cache/recipe.h"

namespace quire {

// In the order of FrameKind.
constexpr std::string_view kFrameNames[] = {"plain", "rotated", "calibrated", "centred"};

// What lies between the commas outside parentheses.
std::vector<std::string_view> split_at_commas(std::string_view text);

class RecipeParser {
 public:
  explicit RecipeParser(std::string_view whole)
      : whole_(whole), fail_([this](const std::string& what) { fail(what); }), index_(fail_) {}

  // Throws Error of one sentence.
  Recipe parse();

 private:
  void parse_named(std::string_view name);
  void set_named(const NamedRecipe& named);
  void parse_settings(std::string_view settings);
  void parse_setting(std::string_view setting);
  bool parse_exact_rows(std::string_view name, std::string_view value);
  PolicySettings* own_policy();
  bool parse_policy_setting(std::string_view name, std::string_view value);
  void parse_selection(std::string_view text);
  void parse_policy(PolicyAxis axis, std::string_view key, std::string_view text);
  template <typename Take>
  void parse_inner(std::string_view what, std::string_view text, const std::string& names, const Take& take);
  SideFormat parse_format(std::string_view name) const;
  size_t parse_number(std::string_view name, std::string_view text, size_t most) const;
  FrameKind parse_frame(std::string_view text) const;

  // What was said becomes the recipe, or is refused.
  void finish();
  void finish_coded(const SideFormat& keys);
  void finish_exact(const SideFormat& keys, const SideFormat& values);
  void check_statistics(const SideFormat& keys, const SideFormat& values) const;
  void check_index(const SideFormat& keys, const SideFormat& values) const;
  void check_keep(const SideFormat& keys, const SideFormat& values) const;
  bool indexes_keys() const;
  void check_policies(const SideFormat& keys) const;
  void check_place() const;
  std::string_view take_place(std::string_view text);
  PolicyChoice choice_of(PolicyAxis axis) const;
  std::string policy_text(PolicyAxis axis) const;

  template <typename T>
  std::optional<T>& once(std::optional<T>& setting, std::string_view name) const {
    if (setting) fail(std::string(name) + "= is given twice");
    return setting;
  }
  [[noreturn]] void fail(const std::string& what) const;

  std::string_view whole_;
  SettingError fail_;
  Recipe recipe_;
  const NamedRecipe* named_ = nullptr;
  SideFormat key_default_ = SideFormat::exact(Format::kF16);
  SideFormat value_default_ = SideFormat::exact(Format::kF16);
  bool selects_ = false;  // by the index of the keys
  IndexSettings index_;
  std::optional<PolicySettings> policies_[3];  // [axis]
  std::optional<bool> stats_;                  // of the prompt
  std::optional<size_t> full_rows_;
  std::optional<SideFormat> keys_;
  std::optional<SideFormat> values_;
  std::optional<size_t> sink_;
  std::optional<size_t> tail_;
  std::optional<PagePlace> place_;
};

}  // namespace quire
