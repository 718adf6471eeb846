// The settings of a selection by index, as text.
#pragma once

#include <string>
#include <string_view>

#include "cache/setting_number.h"
#include "policy/index_budget.h"

namespace quire {

// The names of the settings.
bool is_index_setting(std::string_view name);

// Reads NAME=VALUE settings into a budget, one call each, then finish().
class IndexSettings {
 public:
  explicit IndexSettings(SettingError fail) : fail_(std::move(fail)) {}

  // What holds where nothing is said.
  void set_usual(const IndexBudget& usual) { usual_ = budget_ = usual; }

  void parse(std::string_view name, std::string_view value);
  IndexBudget finish() const;

 private:
  void parse_budget(std::string_view value);

  SettingError fail_;
  IndexBudget usual_;
  IndexBudget budget_;
  bool has_budget_ = false;
  bool has_candidates_ = false;
  bool candidates_are_share_ = false;
  bool has_dense_ = false;
  bool has_queries_ = false;
};

// What differs from the usual: "budget=20%,dense=2"; empty if nothing does.
std::string index_settings_text(const IndexBudget& budget, const IndexBudget& usual);

}  // namespace quire
