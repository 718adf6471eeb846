// quire bench: recipes timed side by side on one prompt, with memory and quality beside the speed. Takes the
// flags of Monarch's published benchmark.
#include <unistd.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "bench_on_device.h"
#include "bench_outputs.h"
#include "bench_report.h"
#include "commands.h"
#include "engine/calibration_text.h"
#include "engine/vocabulary_reader.h"
#include "options.h"
#include "study/bench.h"
#include "terminal.h"

namespace quire::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kBenchExamples =
    "Examples:\n"
    "  quire bench -m model.gguf -f book.txt --mode both --max-new-tokens 100\n"
    "  quire bench -m model.gguf -f book.txt --mode both --promotion-threshold 0.15 --sticky-threshold 3\n"
    "  quire bench -m model.gguf -f book.txt --mode standard,turbo4,quire --prompt-tokens 1024,2048,4096 "
    "--svg "
    "charts\n"
    "  quire bench -m model.gguf -f book.txt --mode full,full --json     # how far apart equal runs lie\n"
    "\nEvery recipe first runs untimed, then repeat 1 of each is timed, then repeat 2 of each, and so on. A "
    "run\n"
    "computes the prompt and generates, with a cache and buffers of its own; loading is not part of it. The "
    "first\n"
    "token comes with the prompt and counts as prefill. Tokens that end a text are never chosen, so that all "
    "runs\n"
    "have as many steps. Quality is measured afterwards, all recipes forced along the same tokens: those "
    "that\n"
    "follow the prompt in the text if there are enough (see --prompt-tokens), else those that `full` "
    "generated.\n"
    "See docs/bench.md.";

struct Options {
  ModelOptions model;
  TextInput input;
  std::string mode = "both";
  std::string preset;
  MonarchFlags monarch;
  std::string compression_mode = "turboquant";
  std::string base_model;
  bool load_in_4bit = false;
  int64_t new_tokens = 128;
  std::vector<int64_t> prompt_tokens;
  int64_t repeats = 3;
  bool warm_up = true;
  bool quality = true;
  double temperature = 0;
  double top_p = 0.9;
  int64_t seed = 0;
  bool json = false;
  BenchPaths paths;
  DeviceBenchFlags device;
};

// The published presets, and `balanced` for its defaults.
void apply_preset(const CLI::App& app, Options& options) {
  const auto set = [&](const char* flag, int64_t& value, int64_t preset) {
    if (app.count(flag) == 0) value = preset;
  };
  const bool fast = options.preset == "fast";
  if (!fast && options.preset != "accurate") return;
  set("--max-new-tokens", options.new_tokens, fast ? 64 : 256);
  set("--repeats", options.repeats, fast ? 1 : 3);
  set("--window-size", options.monarch.window_size, fast ? 256 : 768);
  set("--max-hot-tokens", options.monarch.max_hot_tokens, fast ? 384 : 1024);
  set("--page-size", options.monarch.page_size, fast ? 16 : 32);
}

void check_share(const char* name, double value) {
  if (!(value >= 0 && value <= 1)) {
    throw Error(std::string(name) + " must be between 0 and 1, not " + fixed(value, 6));
  }
}

void check(const Options& options) {
  check_range("--max-new-tokens", options.new_tokens, 2, kMostTokens);
  check_range("--repeats", options.repeats, 1, 1000);
  check_range("--seed", options.seed, 0, std::numeric_limits<int64_t>::max());
  for (const int64_t n : options.prompt_tokens) check_range("--prompt-tokens", n, 1, kMostTokens);
  const MonarchFlags& monarch = options.monarch;
  check_range("--window-size", monarch.window_size, 1, kMostTokens);
  check_range("--max-hot-tokens", monarch.max_hot_tokens, 1, kMostTokens);
  check_range("--page-size", monarch.page_size, 1, kMostTokens);
  check_range("--sticky-threshold", monarch.sticky_threshold, 1, kMostTokens);
  check_range("--initial-sticky-tokens", monarch.initial_sticky_tokens, 0, kMostTokens);
  check_share("--promotion-threshold", monarch.promotion_threshold);
  check_share("--importance-decay", monarch.importance_decay);
}

// What was asked for and means nothing here, a sentence each.
std::vector<std::string> flag_notes(const CLI::App& app, const std::vector<BenchEntry>& entries,
                                    const Options& options) {
  std::vector<std::string> notes;
  if (!options.base_model.empty()) notes.push_back("--base-model is ignored: a GGUF file is a whole model");
  if (options.load_in_4bit) {
    notes.push_back("--load-in-4bit changes nothing: weights stay as the model file has them");
  }
  if (options.compression_mode == "legacy") {
    notes.push_back(
        "--compression-mode legacy is not reproduced: cold tokens are kept in the codes of recipe monarch");
  }
  const bool monarch = std::any_of(entries.begin(), entries.end(),
                                   [](const auto& entry) { return entry.mode == "monarch-v3"; });
  for (const char* flag : {"--window-size", "--max-hot-tokens", "--page-size", "--promotion-threshold",
                           "--sticky-threshold", "--importance-decay", "--initial-sticky-tokens"}) {
    if (!monarch && app.count(flag) > 0) {
      notes.push_back(std::string(flag) + " belongs to mode monarch-v3, which is not among the modes");
    }
  }
  return notes;
}

Json config_json(const Options& options) {
  const MonarchFlags& monarch = options.monarch;
  return {{"mode", options.mode},
          {"preset", options.preset},
          {"max_new_tokens", options.new_tokens},
          {"temperature", options.temperature},
          {"top_p", options.top_p},
          {"seed", options.seed},
          {"repeats", options.repeats},
          {"warm_up", options.warm_up},
          {"window_size", monarch.window_size},
          {"max_hot_tokens", monarch.max_hot_tokens},
          {"page_size", monarch.page_size},
          {"compression_mode", options.compression_mode},
          {"promotion_threshold", monarch.promotion_threshold},
          {"sticky_threshold", monarch.sticky_threshold},
          {"importance_decay", monarch.importance_decay},
          {"initial_sticky_tokens", monarch.initial_sticky_tokens}};
}

Json report(const Options& options, const Engine& engine, const BenchResult& result) {
  return {{"model", options.model.path},
          {"threads", engine.n_threads()},
          {"isa", Engine::isa()},
          {"precise", options.model.precise},
          {"load_seconds", engine.load_seconds()},
          {"config", config_json(options)},
          {"rows", bench_rows_json(result)},
          {"delta", bench_delta_json(result)},
          {"notes", result.notes}};
}

BenchOptions bench_options(const Options& options, const std::vector<BenchEntry>& entries, size_t n_text) {
  BenchOptions bench;
  bench.entries = entries;
  for (const int64_t n : options.prompt_tokens) bench.prompt_tokens.push_back(static_cast<size_t>(n));
  if (bench.prompt_tokens.empty()) bench.prompt_tokens = {n_text};
  std::sort(bench.prompt_tokens.begin(), bench.prompt_tokens.end());
  const auto equal = std::unique(bench.prompt_tokens.begin(), bench.prompt_tokens.end());
  bench.prompt_tokens.erase(equal, bench.prompt_tokens.end());
  bench.n_new_tokens = static_cast<size_t>(options.new_tokens);
  bench.n_repeats = static_cast<size_t>(options.repeats);
  bench.warm_up = options.warm_up;
  bench.quality = options.quality;
  bench.sampling.temperature = options.temperature;
  bench.sampling.top_p = options.top_p;
  bench.sampling.seed = static_cast<uint64_t>(options.seed);
  bench.stop_flag = &interrupt_flag();
  return bench;
}

// The published benchmark may be called without one; ours then is long enough that tokens leave a window.
constexpr size_t kOwnPromptTokens = 2000;

std::string prompt_text(const TextInput& input, bool& own) {
  std::string text;
  if (input.given() || isatty(STDIN_FILENO) == 0) text = read_text(input, LastNewline::kDrop);
  own = text.empty() && !input.given();
  return own ? std::string(calibration_text()) : text;
}

int run(const CLI::App& app, Options& options) {
  apply_preset(app, options);
  check(options);
  check_device_bench_flags(app, options.device);
  if (options.device.given()) {
    const std::string modes = options.mode == "both" || options.mode == "standard" ? "full" : options.mode;
    return bench_on_device(options.model, options.device,
                           {modes, options.new_tokens, options.json, options.paths.output});
  }
  if (options.model.path.empty()) throw Error("--model is required");
  const std::vector<BenchEntry> entries = parse_bench_modes(options.mode, options.monarch);
  bench_options(options, entries, 1).sampling.check();
  std::vector<Recipe> recipes;
  for (const BenchEntry& entry : entries) recipes.push_back(entry.recipe);
  const EngineOptions engine_options = options.model.engine_options(recipes);
  bool own_text = false;
  const std::string text = prompt_text(options.input, own_text);
  BenchOutputs outputs(options.paths);
  catch_interrupts();
  Engine engine(options.model.path, engine_options);
  const std::vector<int32_t> tokens = encode_prompt(engine.tokenizer(), text, ControlTokens::kParse);
  if (tokens.empty()) throw Error("the prompt is empty, and the model has no token to begin a text with");
  const size_t n_prompt = own_text ? std::min(tokens.size(), kOwnPromptTokens) : tokens.size();
  BenchOptions bench = bench_options(options, entries, n_prompt);
  BenchResult result;
  {
    ProgressLine line("timing " + std::to_string(entries.size()) + " recipes", true);
    bench.progress = [&](double share) { line.show(share); };
    result = run_bench(engine, tokens, bench);
  }
  if (result.interrupted) return kInterrupted;
  std::vector<std::string> notes = flag_notes(app, entries, options);
  if (own_text) notes.push_back("there is no prompt, so it is the text that ships for calibrations");
  result.notes.insert(result.notes.begin(), notes.begin(), notes.end());
  const Json object = report(options, engine, result);
  outputs.write(result, object);
  if (!options.paths.svg_folder.empty() && bench.prompt_tokens.size() == 1) {
    result.notes.push_back("decode time is charted against depth where --prompt-tokens has several numbers");
  }
  for (const std::string& note : result.notes) write_note("note: " + note);
  if (options.json) {
    write_json(object);
  } else {
    write_out(bench_table(result));
  }
  return kOk;
}

void add_monarch_options(CLI::App& app, Options& options) {
  const auto add = [&](const char* name, auto& value, const char* text) {
    app.add_option(name, value, text)->capture_default_str()->group("Mode monarch-v3");
  };
  add("--window-size", options.monarch.window_size, "newest tokens that stay hot (exact)");
  add("--max-hot-tokens", options.monarch.max_hot_tokens,
      "most hot tokens: the window, which holds up to 63 more until a page is coded, and copies");
  add("--page-size", options.monarch.page_size, "tokens that move together");
  add("--promotion-threshold", options.monarch.promotion_threshold,
      "attention from which a token is promoted; 1: never");
  add("--sticky-threshold", options.monarch.sticky_threshold, "promotions after which a token stays hot");
  add("--importance-decay", options.monarch.importance_decay, "what a step leaves of a token's importance");
  add("--initial-sticky-tokens", options.monarch.initial_sticky_tokens,
      "tokens of the prompt that stay hot from the start");
  app.add_option("--compression-mode", options.compression_mode,
                 "turboquant, or legacy: noted, and the recipe's own codes taken")
      ->check(CLI::IsMember({"turboquant", "legacy"}))
      ->capture_default_str()
      ->group("Mode monarch-v3");
}

void add_output_options(CLI::App& app, Options& options) {
  app.add_flag("--json", options.json, "print one JSON object")->group("Output");
  const auto add = [&](const char* name, std::string& value, const char* text, const char* type) {
    app.add_option(name, value, text)->type_name(type)->group("Output");
  };
  add("--output", options.paths.output, "write the JSON object to a file, too", "FILE");
  add("--trace", options.paths.trace, "write every step as a line of JSON", "FILE");
  add("--trace-dir", options.paths.trace_folder, "the same, a file for each recipe and repeat", "DIR");
  add("--svg", options.paths.svg_folder,
      "draw decode time against depth, and hot and cold tokens over the steps", "DIR");
}

void add_bench_options(CLI::App& app, Options& options) {
  app.add_option(
         "--mode,--kv", options.mode,
         "what to compare: standard (recipe full), monarch-v3, both, or recipes, with commas between them")
      ->type_name("MODES")
      ->capture_default_str();
  app.add_option("-n,--max-new-tokens", options.new_tokens, "tokens to generate in a run")
      ->type_name("N")
      ->capture_default_str();
  app.add_option(
         "--prompt-tokens", options.prompt_tokens,
         "take so many first tokens of the text as the prompt, and time each number given (default: all)")
      ->type_name("N,N,...")
      ->delimiter(',')
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->allow_extra_args(false);
  app.add_option("--repeats", options.repeats, "timed runs of each recipe")
      ->type_name("N")
      ->capture_default_str();
  app.add_flag("--warmup,!--no-warmup", options.warm_up, "run each recipe once untimed before (default)");
  app.add_flag("--quality,!--no-quality", options.quality, "measure quality against full, too (default)");
  app.add_option(
         "--preset", options.preset,
         "fast, balanced or accurate: tokens, repeats, window and pages that are not given themselves")
      ->check(CLI::IsMember({"fast", "balanced", "accurate"}));
  app.add_option("--temp,--temperature", options.temperature, "temperature; 0: always the most likely token")
      ->capture_default_str();
  app.add_option("--top-p", options.top_p, "of sampling, where the temperature is not 0")
      ->capture_default_str();
  app.add_option("-s,--seed", options.seed, "of sampling")->capture_default_str();
  app.add_option("--base-model", options.base_model, "ignored: a GGUF file is a whole model")
      ->type_name("NAME");
  app.add_flag("--load-in-4bit", options.load_in_4bit,
               "changes nothing: weights stay as the model file has them");
}

}  // namespace

Command add_bench(CLI::App& root) {
  CLI::App* app = root.add_subcommand("bench", "Time recipes side by side on one prompt.");
  auto options = std::make_shared<Options>();
  add_text_options(*app, options->input,
                   "the prompt; without -p and -f it is read from stdin, or is a text that ships with Quire");
  app->add_option("--prompt-file", options->input.file, "the same as -f")->type_name("FILE");
  add_bench_options(*app, *options);
  add_engine_options(*app, options->model);
  app->get_option("--model")->required(false);  // --random-weights may stand in for it
  add_context_option(*app, options->model);
  add_fact_options(*app, options->model);
  add_monarch_options(*app, *options);
  add_output_options(*app, *options);
  add_device_bench_options(*app, options->device);
  app->footer(kBenchExamples);
  return {app, [app, options] { return run(*app, *options); }};
}

}  // namespace quire::cli
