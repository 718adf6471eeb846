// Recipes that have a name of their own: a choice on every axis, which settings then change.
#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include "format/side_format.h"
#include "policy/index_budget.h"
#include "policy/policy_choice.h"

namespace quire {

struct Recipe;

struct NamedRecipe {
  const char* name;
  SideFormat keys;
  SideFormat values;
  std::optional<IndexBudget> index = {};  // reads what the index of the keys names; the usual budget
  Policy policy = Policy::kNone;          // of its axis, with its usual settings
  size_t full_rows = 0;
  std::optional<size_t> tail_tokens = {};  // where it is not what the codes are published with
  const char* tail_name = "tail";
  const char* summary = "";
};
std::span<const NamedRecipe> named_recipes();
// nullptr when none has that name.
const NamedRecipe* named_recipe(std::string_view name);
// The one that differs from the recipe in settings alone; nullptr when there is none.
const NamedRecipe* name_of(const Recipe& recipe);

// Exact rows that a code is published with, where settings do not say otherwise.
struct ExactDefaults {
  size_t sink_tokens = 4;
  size_t tail_tokens = 64;
};
ExactDefaults exact_defaults(const SideFormat& keys);

bool is_signvq(const SideFormat& side);

}  // namespace quire
