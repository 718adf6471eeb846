// Numbers in the settings of recipes, and how errors show what was given.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "policy/row_budget.h"

namespace quire {

// Called with what is wrong; does not return.
using SettingError = std::function<void(const std::string&)>;

// At most 40 characters of what was given, so that an error stays a sentence.
std::string shown(std::string_view text);
// The same in quotes.
std::string shown_in_quotes(std::string_view text);

// Ten digits at most.
std::string number_text(double x);

// As its text says it, so that a recipe is what its text parses to. Calls `fail` for anything but a number
// from `least` to `most`.
double parse_setting_number(const SettingError& fail, std::string_view name, std::string_view value,
                            double least, double most);
// The same of whole numbers.
double parse_setting_whole(const SettingError& fail, std::string_view name, std::string_view value,
                           double least, double most);

// A share in percent ("7.5%") or a number of rows.
RowBudget parse_row_budget(const SettingError& fail, std::string_view value);
// parse_row_budget() gives it back.
std::string row_budget_text(const RowBudget& budget);

}  // namespace quire
