#include "cache/index_settings.h"

#include <algorithm>
#include <iterator>

namespace quire {

namespace {

constexpr std::string_view kNames[] = {"budget", "mass", "candidates", "dense", "queries"};
constexpr double kMostDenseLayers = 4096;

}  // namespace

bool is_index_setting(std::string_view name) {
  return std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames);
}

void IndexSettings::parse_budget(std::string_view value) {
  const RowBudget budget = parse_row_budget(fail_, value);
  budget_.share = budget.share;
  budget_.rows = budget.rows;
  budget_.mass = 0;
}

void IndexSettings::parse(std::string_view name, std::string_view value) {
  if (name == "budget" || name == "mass") {
    if (has_budget_) fail_("budget= and mass= are given more than once or together");
    has_budget_ = true;
    if (name == "budget") return parse_budget(value);
    budget_.share = 0;
    budget_.mass = parse_setting_number(fail_, name, value, 0.01, 1);
    return;
  }
  bool& given = name == "candidates" ? has_candidates_ : name == "dense" ? has_dense_ : has_queries_;
  if (given) fail_(std::string(name) + "= is given twice");
  given = true;
  if (name == "queries") {
    if (value != "max" && value != "mean") fail_("queries= takes max or mean");
    budget_.mean_query = value == "mean";
  } else if (name == "dense") {
    budget_.dense_layers = static_cast<size_t>(parse_setting_whole(fail_, name, value, 0, kMostDenseLayers));
  } else if (value.ends_with('%')) {
    budget_.candidates =
        parse_setting_number(fail_, name, value.substr(0, value.size() - 1), 0.01, 100) / 100;
    candidates_are_share_ = true;
  } else {
    budget_.candidates = parse_setting_number(fail_, name, value, 1, 100);
  }
}

IndexBudget IndexSettings::finish() const {
  IndexBudget budget = budget_;
  const bool by_mass = budget.mass > 0;
  if (!has_candidates_) {
    budget.candidates = by_mass ? kMassCandidates : usual_.candidates;
  } else if (candidates_are_share_ != by_mass) {
    fail_(by_mass ? "with mass=, candidates= is a share of the tokens, such as 20%"
                  : "with budget=, candidates= is a multiple of the budget, such as 2");
  }
  return budget;
}

std::string index_settings_text(const IndexBudget& budget, const IndexBudget& usual) {
  std::string text;
  if (budget.mass > 0) {
    text += ",mass=" + number_text(budget.mass);
    if (budget.candidates != kMassCandidates) {
      text += ",candidates=" + number_text(budget.candidates * 100) + "%";
    }
  } else {
    if (budget.rows > 0 || budget.share != usual.share) {
      text += ",budget=" + row_budget_text({budget.share, budget.rows});
    }
    if (budget.candidates != usual.candidates) text += ",candidates=" + number_text(budget.candidates);
  }
  if (budget.dense_layers != usual.dense_layers) text += ",dense=" + std::to_string(budget.dense_layers);
  if (budget.mean_query != usual.mean_query) {
    text += budget.mean_query ? ",queries=mean" : ",queries=max";
  }
  return text.empty() ? text : text.substr(1);
}

}  // namespace quire
