#include "study/ruler_task.h"

#include <array>

#include "base/error.h"

namespace quire {
namespace {

constexpr size_t kNeedleAnswerTokens = 128;

constexpr RulerTask needle(std::string_view name, Hay hay, NeedleText keys, NeedleText values,
                           size_t n_keys = 1, size_t n_values = 1, size_t n_queries = 1) {
  return {name, RulerKind::kNeedle, kNeedleAnswerTokens, {hay, keys, values, n_keys, n_values, n_queries}};
}

using enum NeedleText;

constexpr std::array<RulerTask, 11> kTasks = {
    needle("niah_single_1", Hay::kNoise, kWords, kNumbers),
    needle("niah_single_2", Hay::kEssay, kWords, kNumbers),
    needle("niah_single_3", Hay::kEssay, kWords, kUuids),
    needle("niah_multikey_1", Hay::kEssay, kWords, kNumbers, 4),
    needle("niah_multikey_2", Hay::kNeedles, kWords, kNumbers),
    needle("niah_multikey_3", Hay::kNeedles, kUuids, kUuids),
    needle("niah_multivalue", Hay::kEssay, kWords, kNumbers, 1, 4),
    needle("niah_multiquery", Hay::kEssay, kWords, kNumbers, 4, 1, 4),
    RulerTask{"vt", RulerKind::kVariables, 30},
    RulerTask{"cwe", RulerKind::kCommonWords, 120},
    RulerTask{"fwe", RulerKind::kFrequentWords, 50}};

}  // namespace

std::span<const RulerTask> ruler_tasks() { return kTasks; }

const RulerTask& ruler_task(std::string_view name) {
  std::string names;
  for (const RulerTask& task : kTasks) {
    if (task.name == name) return task;
    names.append(names.empty() ? "" : ", ").append(task.name);
  }
  throw Error("there is no task '" + std::string(name) + "'; there are " + names);
}

}  // namespace quire
