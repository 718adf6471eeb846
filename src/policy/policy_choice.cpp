#include "policy/policy_choice.h"

#include "base/error.h"

namespace quire {

namespace {

constexpr double kMostRows = 1e9;

constexpr PolicySetting kWindowSettings[] = {{"window", 2000, 1, kMostRows, true}};
constexpr PolicySetting kLogSettings[] = {
    {"reserve", 192, 3, kMostRows, true},
    {"rule", 0, 0, 1, true, "published|strided"},
    {"partial", 0, 0, 1, true, "off|on"},
};
constexpr PolicySetting kHeavySettings[] = {{"recent", 0.5, 0, 1, false}};
constexpr PolicySetting kKeyformerSettings[] = {
    {"recent", 0.3, 0, 1, false},
    {"tau", 2, 1, 100, false},
    {"steps", 512, 1, kMostRows, true},
    {"seed", 1, 0, 4294967295.0, true},
};
constexpr PolicySetting kSnapKvSettings[] = {
    {"window", 32, 1, 1024, true},
    {"kernel", 5, 1, 63, true},
};
constexpr PolicySetting kQuestSettings[] = {
    {"page", 16, 4, 64, true},
    {"dense", 2, 0, 4096, true},
    {"queries", 0, 0, 1, true, "group|head"},
};
constexpr PolicySetting kDoubleSparseSettings[] = {
    {"channels", 16, 1, 256, true},
    {"bits", 4, 2, 8, true},
    {"dense", 0, 0, 4096, true},
    {"from", 0, 0, 1, true, "model|prompt"},
};
constexpr PolicySetting kButlerSettings[] = {
    {"sink", 4, 0, kMostRows, true},
    {"local", 64, 1, kMostRows, true},
    {"interval", 1, 1, kMostRows, true},
    {"neighbours", 0, 0, 1, true, "off|on"},
    {"keys", 0, 0, 1, true, "bf16|int8"},
    {"heads", 0, 0, 2, true, "sum|probability|score"},
    {"dim", 16, 1, 256, true},
};
constexpr PolicySetting kOracleSettings[] = {{"dense", 0, 0, 4096, true}};
constexpr PolicySetting kRandomSettings[] = {
    {"dense", 0, 0, 4096, true},
    {"recent", 32, 0, kMostRows, true},
    {"seed", 1, 0, 4294967295.0, true},
};
constexpr PolicySetting kHotPageSettings[] = {
    {"max_hot", 768, 1, kMostRows, true},
    {"page", 16, 1, 64, true},
    {"promote", 0.12, 0, 1, false},
    {"sticky", 2, 0, kMostRows, true},
    {"decay", 0.92, 0, 1, false},
    {"initial_sticky", 16, 0, 4096, true},
    {"trigger", 0, 0, 2, true, "mass|score|off"},
    {"swaps", 4, 1, 4096, true},
    {"cold", 0.1, 0, 1, false},
};

constexpr PolicyInfo kPolicies[kPolicyCount - 1] = {
    {"window",
     "streaming",
     PolicyAxis::kKeep,
     {},
     kWindowSettings,
     "the first tokens (sink=4) and the newest of the window; positions count inside the cache, so that text "
     "can go on past the trained context",
     "StreamingLLM, arXiv 2309.17453"},
    {"log",
     "logquant",
     PolicyAxis::kKeep,
     {},
     kLogSettings,
     "a reserve that thins out with distance stays exact; the others are coded, or with exact formats "
     "dropped",
     "LogQuant, arXiv 2503.19950"},
    {"h2o",
     "h2o",
     PolicyAxis::kKeep,
     {0.2, 0},
     kHeavySettings,
     "the newest rows and those with most attention so far",
     "H2O, arXiv 2306.14048"},
    {"keyformer",
     "keyformer",
     PolicyAxis::kKeep,
     {0.5, 0},
     kKeyformerSettings,
     "the newest rows and those with most attention by scores with Gumbel noise",
     "Keyformer, arXiv 2403.09054"},
    {"snapkv",
     "snapkv",
     PolicyAxis::kKeep,
     {0, 2048},
     kSnapKvSettings,
     "of a prompt the rows that its last queries like, and all that comes after it",
     "SnapKV, arXiv 2404.14469"},
    {"quest",
     "quest",
     PolicyAxis::kSelect,
     {0.075, 0},
     kQuestSettings,
     "pages with the highest bound of the score, by the least and largest key of each channel",
     "Quest, arXiv 2406.10774"},
    {"doublesparse",
     "doublesparse",
     PolicyAxis::kSelect,
     {0.075, 0},
     kDoubleSparseSettings,
     "rows with the highest score over a few channels, kept apart at few bits",
     "DoubleSparse, arXiv 2408.07092"},
    {"butler",
     "butler",
     PolicyAxis::kSelect,
     {0.075, 0},
     kButlerSettings,
     "the first and the newest rows, and those that a trained predictor names layers ahead, every so many "
     "steps",
     "TokenButler, arXiv 2503.07518"},
    {"oracle",
     "oracle",
     PolicyAxis::kSelect,
     {0.075, 0},
     kOracleSettings,
     "the rows of the highest probability, by scoring all: what no index can beat",
     ""},
    {"random",
     "random",
     PolicyAxis::kSelect,
     {0.075, 0},
     kRandomSettings,
     "rows drawn at random and the newest: what every index must beat",
     ""},
    {"pages",
     "monarch",
     PolicyAxis::kPromote,
     {},
     kHotPageSettings,
     "cold rows are coded and scored by their sign plane; they are read when their estimated mass passes the "
     "threshold, and pages that keep attention get a decoded copy",
     "Monarch v3"},
};

}  // namespace

const PolicyInfo& info(Policy policy) {
  QUIRE_CHECK(policy != Policy::kNone);
  return kPolicies[static_cast<size_t>(policy) - 1];
}

Policy policy_by_name(PolicyAxis axis, std::string_view name) {
  for (size_t i = 0; i < kPolicyCount - 1; ++i) {
    if (kPolicies[i].axis == axis && name == kPolicies[i].name) {
      return static_cast<Policy>(i + 1);
    }
  }
  return Policy::kNone;
}

PolicyChoice PolicyChoice::usual(Policy policy) {
  PolicyChoice choice;
  choice.policy = policy;
  if (policy == Policy::kNone) return choice;
  choice.budget = info(policy).budget;
  for (size_t i = 0; i < info(policy).settings.size(); ++i) choice.values[i] = info(policy).settings[i].usual;
  return choice;
}

double PolicyChoice::value(std::string_view name) const {
  const std::span<const PolicySetting> settings = info(policy).settings;
  for (size_t i = 0; i < settings.size(); ++i) {
    if (name == settings[i].name) return values[i];
  }
  check_failed(__FILE__, __LINE__, "the policy has the setting");
}

}  // namespace quire
