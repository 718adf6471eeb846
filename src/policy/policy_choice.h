// The policies that a recipe can name, and what it says of one: plain data, from which the cache makes the
// objects that decide. A new policy is an entry of the catalogue and its own file.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "policy/row_budget.h"

namespace quire {

// What a policy decides.
enum class PolicyAxis : uint8_t {
  kKeep,     // which rows stay in the cache, and which of these stay exact
  kSelect,   // which rows a decode step reads
  kPromote,  // which coded rows have a decoded copy
};

enum class Policy : uint8_t {
  kNone,  // the axis is left to the formats: all rows are kept, all are read, none is copied
  kWindow,
  kLog,
  kHeavyHitters,
  kKeyformer,
  kSnapKv,
  kQuest,
  kDoubleSparse,
  kButler,
  kOracle,
  kRandom,
  kHotPages,
};
constexpr size_t kPolicyCount = 12;
constexpr size_t kMostPolicySettings = 9;

// A number that a policy takes.
struct PolicySetting {
  const char* name;
  double usual;
  double least;
  double most;
  bool whole;                   // takes whole numbers only
  const char* words = nullptr;  // takes one of these, separated by '|', instead: word i stands for i
};

struct PolicyInfo {
  const char* name;    // in keep=, select= or promote=
  const char* recipe;  // the named recipe that is this policy with its usual formats
  PolicyAxis axis;
  RowBudget budget;  // the usual one; not given: it takes none
  std::span<const PolicySetting> settings;
  const char* summary;
  const char* source;  // paper, or empty
};
// Not of kNone.
const PolicyInfo& info(Policy policy);
// kNone when no policy of the axis has that name.
Policy policy_by_name(PolicyAxis axis, std::string_view name);

struct PolicyChoice {
  Policy policy = Policy::kNone;
  RowBudget budget = {};
  std::array<double, kMostPolicySettings> values = {};  // in the order of the policy's settings

  bool operator==(const PolicyChoice&) const = default;

  // With everything as usual.
  static PolicyChoice usual(Policy policy);
  bool given() const { return policy != Policy::kNone; }
  // The setting must be one of the policy's.
  double value(std::string_view name) const;
  size_t number(std::string_view name) const { return static_cast<size_t>(value(name)); }
};

}  // namespace quire
