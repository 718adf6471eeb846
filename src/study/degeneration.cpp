#include "study/degeneration.h"

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "engine/vocabulary_reader.h"
#include "study/chance.h"
#include "study/repetition.h"
#include "study/stepper.h"

namespace quire {
namespace {

using Tokens = std::vector<int32_t>;

std::vector<Tokens> encode(const Engine& engine, const DegenerationOptions& options) {
  std::vector<Tokens> all;
  for (const std::string& prompt : options.prompts) {
    if (options.chat) {
      const ChatMessage message{"user", prompt, {}};
      all.push_back(engine.chat_template().encode(engine.tokenizer(), {&message, 1}, true));
      continue;
    }
    Tokens tokens = encode_prompt(engine.tokenizer(), prompt, ControlTokens::kAsText);
    if (tokens.empty()) throw Error("a prompt is empty");
    all.push_back(std::move(tokens));
  }
  return all;
}

void check(const Engine& engine, const DegenerationOptions& options, const std::vector<Tokens>& prompts) {
  const size_t context = engine.config().context_tokens;
  const bool all_endless = std::all_of(options.recipes.begin(), options.recipes.end(),
                                       [](const Recipe& recipe) { return recipe.endless(); });
  for (size_t i = 0; i < prompts.size() && !all_endless; ++i) {
    const size_t n_all = prompts[i].size() + options.n_new_tokens;
    if (n_all <= context) continue;
    throw Error("prompt " + std::to_string(i + 1) + " has " + std::to_string(prompts[i].size()) +
                " tokens, and with " + std::to_string(options.n_new_tokens) +
                " new ones exceeds the model's context of " + std::to_string(context));
  }
}

// Key rows of `full` in n_steps steps, the first of which is of the token behind the prompt.
uint64_t rows_of_full(const Geometry& geometry, size_t n_prompt, size_t n_steps) {
  uint64_t n_rows = 0;
  for (size_t step = 1; step <= n_steps; ++step) n_rows += geometry.rows_of(n_prompt + step);
  return n_rows;
}

LongRun generate(Engine& engine, const Recipe& recipe, const Tokens& prompt,
                 const DegenerationOptions& options, uint64_t seed, Tokens& tokens) {
  SamplingOptions sampling = options.sampling;
  sampling.seed = seed;
  Sampler sampler(sampling);
  Session session(engine, {.recipe = recipe});
  session.prefill(prompt);
  GenerateOptions generate;
  generate.max_tokens = options.n_new_tokens;
  Generation generation = session.generate(sampler, generate);
  LongRun run;
  run.text = std::move(generation.text);
  run.finish = generation.finish;
  run.n_tokens = generation.tokens.size();
  run.n_to_repeat = tokens_to_repeat(generation.tokens);
  run.distinct = distinct_share(generation.tokens);
  run.n_steps = generation.n_steps;
  run.seconds = generation.seconds;
  run.rows_read = generation.rows_read;
  run.rows_there = rows_of_full(session.cache().geometry(), prompt.size(), generation.n_steps);
  run.bytes_read = generation.bytes_read;
  tokens = std::move(generation.tokens);
  return run;
}

size_t common_beginning(const Tokens& a, const Tokens& b) {
  const size_t n = std::min(a.size(), b.size());
  return static_cast<size_t>(
      std::mismatch(a.begin(), a.begin() + static_cast<std::ptrdiff_t>(n), b.begin()).first - a.begin());
}

// The recipes to run, `full` first and none twice; [recipe asked for] which of them it is.
struct Plan {
  std::vector<Recipe> recipes = {Recipe{}};
  std::vector<size_t> rows;

  explicit Plan(const std::vector<Recipe>& asked) {
    if (std::find(asked.begin(), asked.end(), Recipe{}) == asked.end()) rows.push_back(0);
    for (const Recipe& recipe : asked) {
      const auto found = std::find(recipes.begin(), recipes.end(), recipe);
      rows.push_back(static_cast<size_t>(found - recipes.begin()));
      if (found == recipes.end()) recipes.push_back(recipe);
    }
  }
};

template <typename Value>
double sum(const std::vector<LongRun>& runs, const Value& value) {
  double total = 0;
  for (const LongRun& run : runs) total += static_cast<double>(value(run));
  return total;
}

// By `times`, which may be none.
double ratio(double total, double times, double of_none) { return times > 0 ? total / times : of_none; }

template <typename Value>
double mean(const std::vector<LongRun>& runs, const Value& value) {
  return ratio(sum(runs, value), static_cast<double>(runs.size()), 0);
}

double steps(const std::vector<LongRun>& runs) {
  return sum(runs, [](const LongRun& run) { return run.n_steps; });
}

}  // namespace

double Degeneration::repeats() const {
  return mean(runs, [](const LongRun& run) { return run.n_to_repeat > 0; });
}

double Degeneration::ends() const {
  return mean(runs, [](const LongRun& run) { return run.finish == FinishReason::kEnd; });
}

double Degeneration::tokens() const {
  return mean(runs, [](const LongRun& run) { return run.n_tokens; });
}

double Degeneration::tokens_to_repeat() const {
  return ratio(sum(runs, [](const LongRun& run) { return run.n_to_repeat; }),
               sum(runs, [](const LongRun& run) { return run.n_to_repeat > 0; }),
               std::numeric_limits<double>::quiet_NaN());
}

double Degeneration::tokens_as_full() const {
  return mean(runs, [](const LongRun& run) { return run.n_as_full; });
}

double Degeneration::distinct() const {
  return mean(runs, [](const LongRun& run) { return run.distinct; });
}

double Degeneration::tokens_per_s() const {
  return ratio(steps(runs), sum(runs, [](const LongRun& run) { return run.seconds; }), 0);
}

double Degeneration::read() const {
  return ratio(sum(runs, [](const LongRun& run) { return run.rows_read; }),
               sum(runs, [](const LongRun& run) { return run.rows_there; }), 1);
}

double Degeneration::rows_read_per_token() const {
  return ratio(sum(runs, [](const LongRun& run) { return run.rows_read; }), steps(runs), 0);
}

double Degeneration::bytes_read_per_token() const {
  return ratio(sum(runs, [](const LongRun& run) { return run.bytes_read; }), steps(runs), 0);
}

std::vector<Degeneration> measure_degeneration(Engine& engine, const DegenerationOptions& options) {
  if (options.recipes.empty()) throw Error("there is no recipe to compare");
  if (options.prompts.empty()) throw Error("there is no prompt");
  if (options.n_new_tokens == 0) throw Error("there is no token to generate");
  const std::vector<Tokens> prompts = encode(engine, options);
  check(engine, options, prompts);
  const Plan plan(options.recipes);
  std::vector<Degeneration> all;
  for (const Recipe& recipe : plan.recipes) {
    all.push_back({recipe, {}});
    Session(engine, {.recipe = recipe});  // refuses now what it would refuse later
  }
  const size_t n_all = prompts.size() * all.size();
  size_t n_done = 0;
  for (size_t i = 0; i < prompts.size(); ++i) {
    const uint64_t seed = random_of(options.sampling.seed, options.first_number + i).next();
    Tokens of_full;
    for (Degeneration& row : all) {
      Tokens tokens;
      LongRun run = generate(engine, row.recipe, prompts[i], options, seed, tokens);
      if (&row == &all.front()) of_full = tokens;
      run.n_as_full = common_beginning(tokens, of_full);
      row.runs.push_back(std::move(run));
      if (options.progress) options.progress(static_cast<double>(++n_done) / static_cast<double>(n_all));
    }
  }
  std::vector<Degeneration> rows;
  for (const size_t i : plan.rows) rows.push_back(all[i]);
  return rows;
}

}  // namespace quire
