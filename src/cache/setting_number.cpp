#include "cache/setting_number.h"

#include <charconv>
#include <cmath>
#include <cstdio>

namespace quire {

namespace {

constexpr double kMostRows = 1e9;

double as_printed(double x) {
  const std::string text = number_text(x);
  std::from_chars(text.data(), text.data() + text.size(), x);
  return x;
}

}  // namespace

std::string shown(std::string_view text) {
  constexpr size_t kMost = 40;
  return text.size() <= kMost ? std::string(text) : std::string(text.substr(0, kMost)) + "...";
}

std::string shown_in_quotes(std::string_view text) {
  return std::string("'").append(shown(text)).append("'");
}

std::string number_text(double x) {
  char text[32];
  std::snprintf(text, sizeof text, "%.10g", x);
  return text;
}

double parse_setting_number(const SettingError& fail, std::string_view name, std::string_view value,
                            double least, double most) {
  double x = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), x);
  if (error != std::errc() || end != value.data() + value.size() || !(x >= least && x <= most)) {
    fail(std::string(name) + "= takes a number from " + number_text(least) + " to " + number_text(most) +
         ", not " + shown_in_quotes(value));
  }
  return as_printed(x);
}

double parse_setting_whole(const SettingError& fail, std::string_view name, std::string_view value,
                           double least, double most) {
  const double x = parse_setting_number(fail, name, value, least, most);
  if (x != std::floor(x)) fail(std::string(name) + "= takes a whole number, not " + shown_in_quotes(value));
  return x;
}

RowBudget parse_row_budget(const SettingError& fail, std::string_view value) {
  if (!value.ends_with('%')) {
    return {0, static_cast<size_t>(parse_setting_whole(fail, "budget", value, 1, kMostRows))};
  }
  value.remove_suffix(1);
  const RowBudget budget = {parse_setting_number(fail, "budget (in %)", value, 0, 100) / 100, 0};
  if (budget.share == 0) fail("budget=0% reads nothing");
  return budget;
}

std::string row_budget_text(const RowBudget& budget) {
  return budget.rows > 0 ? std::to_string(budget.rows) : number_text(budget.share * 100) + "%";
}

}  // namespace quire
