// Whether long generations go wrong: how many of them repeat themselves, how many come to an end, and what
// they read and cost on the way.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "cache/recipe.h"
#include "engine/engine.h"
#include "engine/sampler.h"
#include "engine/session.h"

namespace quire {

struct DegenerationOptions {
  std::vector<Recipe> recipes = {};
  std::vector<std::string> prompts = {};
  bool chat = true;  // a prompt is one message of a user; else a text that goes on
  size_t n_new_tokens = 1500;
  // The seed of a prompt is drawn from sampling.seed and its number, the same for every recipe.
  SamplingOptions sampling = {.temperature = 0};
  size_t first_number = 0;                          // of prompts[0], where these are a part of a list
  std::function<void(double share)> progress = {};  // share of the runs done, after each
};

// One prompt by one recipe.
struct LongRun {
  std::string text;
  FinishReason finish = FinishReason::kEnd;
  size_t n_tokens = 0;      // generated
  size_t n_to_repeat = 0;   // tokens_to_repeat() of them: 0, the run does not degenerate
  size_t n_as_full = 0;     // first tokens that are those of `full`
  double distinct = 1;      // distinct_share() of them
  size_t n_steps = 0;       // forward passes
  double seconds = 0;       // of them
  uint64_t rows_read = 0;   // key rows, summed over steps, layers and KV heads
  uint64_t rows_there = 0;  // what `full` would have read in these steps
  uint64_t bytes_read = 0;
};

// Means over the runs, but where steps or seconds are divided by: over all of these.
struct Degeneration {
  Recipe recipe;
  std::vector<LongRun> runs;  // [prompt]

  double repeats() const;           // share of the runs that degenerate
  double ends() const;              // share that the model ended
  double tokens() const;            // generated
  double tokens_to_repeat() const;  // of the runs that degenerate; not a number where none does
  double tokens_as_full() const;
  double distinct() const;
  double tokens_per_s() const;
  double read() const;  // share of all rows that was read; 1 without a step
  double rows_read_per_token() const;
  double bytes_read_per_token() const;
};

// Each prompt in a session of its own, `full` first, which is also the first of the result where it is not
// among the recipes; the others are in the order of options.recipes. All but the seconds is the same for a
// seed, on any number of threads. Throws Error, before anything is generated, when there is no recipe, prompt
// or token, when a prompt and its answer exceed the model's context and a recipe is not endless, or when the
// model has no chat template and options.chat is set.
std::vector<Degeneration> measure_degeneration(Engine& engine, const DegenerationOptions& options);

}  // namespace quire
