// What a recipe says of a policy, as text.
#pragma once

#include <array>
#include <string>
#include <string_view>

#include "cache/setting_number.h"
#include "policy/policy_choice.h"

namespace quire {

// Reads NAME=VALUE settings of one policy, one call each.
class PolicySettings {
 public:
  PolicySettings(Policy policy, SettingError fail);

  bool takes(std::string_view name) const;
  void parse(std::string_view name, std::string_view value);
  const PolicyChoice& choice() const { return choice_; }

 private:
  double parse_word(const PolicySetting& setting, std::string_view value) const;

  SettingError fail_;
  PolicyChoice choice_;
  bool has_budget_ = false;
  std::array<bool, kMostPolicySettings> given_ = {};
};

// "budget=, recent=": the names of the policy's settings.
std::string policy_setting_names(Policy policy);
// All of them as usual: "budget=20%, recent=0.5".
std::string all_policy_settings_text(Policy policy);
// What differs from the usual: "budget=20%,recent=0.3"; empty if nothing does.
std::string policy_settings_text(const PolicyChoice& choice);

}  // namespace quire
