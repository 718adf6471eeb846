#include "cache/policy_settings.h"

#include <utility>

namespace quire {

namespace {

// Word i of "a|b|c", empty behind the last.
std::string_view word_at(std::string_view words, size_t i) {
  while (i > 0 && words.find('|') != std::string_view::npos) {
    words.remove_prefix(words.find('|') + 1);
    --i;
  }
  return i == 0 ? words.substr(0, words.find('|')) : std::string_view();
}

std::string value_text(const PolicySetting& setting, double value) {
  if (setting.words != nullptr) return std::string(word_at(setting.words, static_cast<size_t>(value)));
  return number_text(value);
}

}  // namespace

PolicySettings::PolicySettings(Policy policy, SettingError fail)
    : fail_(std::move(fail)), choice_(PolicyChoice::usual(policy)) {}

bool PolicySettings::takes(std::string_view name) const {
  const PolicyInfo& policy = info(choice_.policy);
  if (name == "budget") return policy.budget.given();
  for (const PolicySetting& setting : policy.settings) {
    if (name == setting.name) return true;
  }
  return false;
}

void PolicySettings::parse(std::string_view name, std::string_view value) {
  if (name == "budget") {
    if (std::exchange(has_budget_, true)) fail_("budget= is given twice");
    choice_.budget = parse_row_budget(fail_, value);
    return;
  }
  const std::span<const PolicySetting> settings = info(choice_.policy).settings;
  for (size_t i = 0; i < settings.size(); ++i) {
    const PolicySetting& setting = settings[i];
    if (name != setting.name) continue;
    if (std::exchange(given_[i], true)) fail_(std::string(name) + "= is given twice");
    if (setting.words != nullptr) {
      choice_.values[i] = parse_word(setting, value);
    } else if (setting.whole) {
      choice_.values[i] = parse_setting_whole(fail_, name, value, setting.least, setting.most);
    } else {
      choice_.values[i] = parse_setting_number(fail_, name, value, setting.least, setting.most);
    }
  }
}

double PolicySettings::parse_word(const PolicySetting& setting, std::string_view value) const {
  for (size_t i = 0; !word_at(setting.words, i).empty(); ++i) {
    if (value == word_at(setting.words, i)) return static_cast<double>(i);
  }
  std::string words(setting.words);
  for (size_t at = words.find('|'); at != std::string::npos; at = words.find('|'))
    words.replace(at, 1, " or ");
  fail_(std::string(setting.name) + "= takes " + words + ", not '" + std::string(value.substr(0, 40)) + "'");
  return 0;
}

std::string policy_setting_names(Policy policy) {
  std::string names = info(policy).budget.given() ? "budget=" : "";
  for (const PolicySetting& setting : info(policy).settings) {
    names += (names.empty() ? "" : ", ") + std::string(setting.name) + "=";
  }
  return names;
}

std::string all_policy_settings_text(Policy policy) {
  const PolicyInfo& entry = info(policy);
  std::string text = entry.budget.given() ? "budget=" + row_budget_text(entry.budget) + " or N rows" : "";
  for (const PolicySetting& setting : entry.settings) {
    text += (text.empty() ? "" : ", ") + std::string(setting.name) + "=";
    text += setting.words != nullptr ? setting.words : value_text(setting, setting.usual);
  }
  return text;
}

std::string policy_settings_text(const PolicyChoice& choice) {
  const PolicyInfo& policy = info(choice.policy);
  std::string text;
  if (!(choice.budget == policy.budget)) text.append(",budget=").append(row_budget_text(choice.budget));
  for (size_t i = 0; i < policy.settings.size(); ++i) {
    const PolicySetting& setting = policy.settings[i];
    if (choice.values[i] == setting.usual) continue;
    text.append(",").append(setting.name).append("=").append(value_text(setting, choice.values[i]));
  }
  return text.empty() ? text : text.substr(1);
}

}  // namespace quire
