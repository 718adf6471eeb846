// RULER's tasks asked through caches: what the model says, and how likely it takes the right answer to be.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "cache/recipe.h"
#include "engine/engine.h"
#include "study/ruler_task.h"

namespace quire {

struct RulerOptions {
  std::vector<Recipe> recipes = {};
  std::vector<const RulerTask*> tasks = {};
  std::vector<size_t> length_tokens = {4096};  // of prompt and answer together
  size_t n_samples = 10;                       // of each task and length
  uint64_t seed = 0;
  std::function<void(double share)> progress = {};
};

// What a recipe made of one sample.
struct RulerAnswer {
  RulerSample sample;  // without its context
  std::string prediction;
  double match = 0;  // match_all()
  double nll = 0;    // of the right answer's tokens, summed, in nats
  size_t answer_tokens = 0;
};

// A recipe on the samples of one task and length.
struct RulerRow {
  Recipe recipe;
  size_t length_tokens = 0;
  const RulerTask* task = nullptr;
  std::vector<RulerAnswer> answers;  // [n_samples]
  double score = 0;                  // mean match, in percent
  double nll = 0;                    // mean over the tokens of the right answers
  double bits_per_value = 0;         // as in Recall
  double rows_read_per_token = 0;
  double bytes_read_per_token = 0;
};

// The context is computed in one step, question and prefix of the answer token by token through the stored
// cache; then a fork goes on greedily, for task.max_new_tokens or to the end of the text, and another one is
// given the right answer. A begin token comes first where the model wants one; there is no chat template.
// Samples depend on seed, task, length and number alone, so all recipes get the same. Rows are in the order
// of recipes, lengths, tasks.
//
// Throws Error when a length is too small for a task or too large for the model, when the prose is empty, or
// when nothing is asked for.
std::vector<RulerRow> measure_ruler(Engine& engine, std::string_view prose, const RulerOptions& options);

}  // namespace quire
