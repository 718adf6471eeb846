// Options that several commands share: how they are named, what they default to, what is refused.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "cache/recipe.h"
#include "engine/engine.h"
#include "engine/sampler.h"
#include "engine/session.h"
#include "rope_options.h"

namespace quire::cli {

constexpr int64_t kMostTokens = int64_t{1} << 32;

// -m -t -c --kv and what else decides how a model is loaded and run.
struct ModelOptions {
  std::string path;
  int64_t threads = 0;
  bool threads_given = false;
  int64_t context_tokens = 0;
  bool context_given = false;
  std::string recipe = "full";  // of the commands that compare: a list of them
  bool recipe_given = false;
  std::string calibration;
  std::string butler;
  std::string chat_template;
  std::string chat_template_file;
  double budget_mb = 0;
  double ram_mb = 0;
  int64_t step_tokens = 0;
  bool precise = false;
  RopeFlags rope;

  bool chat_template_given() const { return !chat_template.empty() || !chat_template_file.empty(); }

  // These throw Error for what cannot be meant.
  EngineOptions engine_options() const;
  // For these recipes instead of `recipe`.
  EngineOptions engine_options(const std::vector<Recipe>& recipes) const;
  SessionOptions session_options() const;
};

// Path, threads, precision, positions.
void add_engine_options(CLI::App& app, ModelOptions& options);
void add_context_option(CLI::App& app, ModelOptions& options);
// All of these, and recipe, budget, prefill steps.
void add_model_options(CLI::App& app, ModelOptions& options);
// The template of a chat, where it is not the model's.
void add_chat_template_options(CLI::App& app, ModelOptions& options);
// Recipe, and what it may need to know of the model.
void add_recipe_option(CLI::App& app, ModelOptions& options);
void add_fact_options(CLI::App& app, ModelOptions& options);

struct SamplingFlags {
  SamplingOptions options;
  int64_t seed = -1;
  int64_t max_tokens = 0;
  bool ignore_end = false;
  std::vector<std::string> stops;

  // Checks everything and settles the seed; throws Error.
  void settle();
  size_t token_limit() const;
};

// `max_tokens`: the command's default for -n.
void add_sampling_options(CLI::App& app, SamplingFlags& flags, int64_t max_tokens);

// Text from -p, -f FILE or stdin.
struct TextInput {
  std::string text;
  bool text_given = false;
  std::string file;
  bool escape = false;

  bool given() const { return text_given || !file.empty(); }
};

void add_text_options(CLI::App& app, TextInput& input, const char* what);

// Takes the last newline of a file or of stdin away, as llama.cpp does with a prompt, or keeps it.
enum class LastNewline { kDrop, kKeep };

// The text; without -p and -f it is read from stdin unless that is a terminal. Throws Error.
std::string read_text(const TextInput& input, LastNewline last_newline);
std::string read_file(const std::string& path);

// \n \r \t \\ \' \" and \xHH become what they stand for; anything else stays.
std::string unescape(const std::string& text);

// Throws Error when value is outside [low, high].
void check_range(const char* name, int64_t value, int64_t low, int64_t high);

}  // namespace quire::cli
