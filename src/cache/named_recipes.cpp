#include "cache/named_recipes.h"

#include <algorithm>
#include <string_view>

#include "cache/recipe.h"

namespace quire {

namespace {

// Self-Indexing as published: the group's mean query chooses, and what it chooses is read.
constexpr IndexBudget kSelfIndexBudget = {0.075, 0, 0, 1, 0, true};

// Beside a window of exact rows the sign plane alone chooses well enough: docs/methods/monarch.md.
constexpr IndexBudget kMonarchBudget = {.candidates = 1};

const SideFormat kF16Rows = SideFormat::exact(Format::kF16);

const NamedRecipe kNamed[] = {
    {.name = "quire",
     .keys = SideFormat::of(Code::kNested4),
     .values = SideFormat::of(Code::kNested3),
     .index = IndexBudget{},
     .summary =
         "k=nested4,v=nested3, of which a step reads the rows that the sign plane of the keys names; "
         "settings: "
         "budget=7.5% or N rows, or mass=0.9; candidates=1.5 (by mass 35%), dense=0 first layers read whole"},
    {.name = "selfindex",
     .keys = SideFormat::of(Code::kSignVq),
     .values = SideFormat::of(Code::kSignVq),
     .index = kSelfIndexBudget,
     .full_rows = 64,
     .summary =
         "k=signvq,v=signvq as Self-Indexing KVCache (arXiv 2603.14224): full_rows=64, and the rows that "
         "the index names for the group's mean query; settings as of quire, and queries=max|mean"},
    {.name = "monarch",
     .keys = SideFormat::of(Code::kNested4),
     .values = SideFormat::of(Code::kNested3),
     .index = kMonarchBudget,
     .policy = Policy::kHotPages,
     .tail_tokens = 512,
     .tail_name = "window"},
    {.name = "logquant",
     .keys = SideFormat::of(Code::kKivi2),
     .values = SideFormat::of(Code::kKivi2),
     .policy = Policy::kLog},
    {.name = "streaming", .keys = kF16Rows, .values = kF16Rows, .policy = Policy::kWindow},
    {.name = "h2o", .keys = kF16Rows, .values = kF16Rows, .policy = Policy::kHeavyHitters},
    {.name = "keyformer", .keys = kF16Rows, .values = kF16Rows, .policy = Policy::kKeyformer},
    {.name = "snapkv", .keys = kF16Rows, .values = kF16Rows, .policy = Policy::kSnapKv},
    {.name = "quest", .keys = kF16Rows, .values = kF16Rows, .policy = Policy::kQuest},
    {.name = "doublesparse", .keys = kF16Rows, .values = kF16Rows, .policy = Policy::kDoubleSparse},
    {.name = "butler", .keys = kF16Rows, .values = kF16Rows, .policy = Policy::kButler},
    {.name = "oracle", .keys = kF16Rows, .values = kF16Rows, .policy = Policy::kOracle},
    {.name = "random", .keys = kF16Rows, .values = kF16Rows, .policy = Policy::kRandom},
};

// Of the axes that are not left to the formats there is at most one.
Policy only_policy(const Recipe& recipe, bool& several) {
  Policy found = Policy::kNone;
  for (const PolicyChoice* choice : {&recipe.keep, &recipe.select, &recipe.promote}) {
    if (!choice->given()) continue;
    several = several || found != Policy::kNone;
    found = choice->policy;
  }
  return found;
}

}  // namespace

std::span<const NamedRecipe> named_recipes() { return kNamed; }

const NamedRecipe* named_recipe(std::string_view name) {
  const auto* found = std::find_if(std::begin(kNamed), std::end(kNamed),
                                   [&](const auto& named) { return name == named.name; });
  return found == std::end(kNamed) ? nullptr : found;
}

const NamedRecipe* name_of(const Recipe& recipe) {
  bool several = false;
  const Policy policy = only_policy(recipe, several);
  if (several) return nullptr;
  const auto fits = [&](const NamedRecipe& named) {
    return named.policy == policy && named.index.has_value() == recipe.index.has_value() &&
           named.keys == recipe.key_side() && named.values == recipe.value_side();
  };
  const auto* found = std::find_if(std::begin(kNamed), std::end(kNamed), fits);
  return found == std::end(kNamed) ? nullptr : found;
}

ExactDefaults exact_defaults(const SideFormat& keys) {
  // KIVI keeps a residual of 128 tokens and no sinks.
  if (keys.coded && std::string_view(keys.name()).starts_with("kivi")) return {0, 128};
  if (is_signvq(keys)) return {0, 0};
  return {};
}

bool is_signvq(const SideFormat& side) { return side == SideFormat::of(Code::kSignVq); }

}  // namespace quire
