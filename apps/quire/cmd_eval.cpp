// quire eval ppl: perplexity of a text, computed through the cache that a recipe describes.
#include <chrono>
#include <memory>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "commands.h"
#include "eval_text.h"
#include "options.h"
#include "study/perplexity.h"
#include "terminal.h"

namespace quire::cli {
namespace {

constexpr const char* kEvalExamples =
    "Examples:\n"
    "  quire eval ppl -m model.gguf -f book.txt\n"
    "  quire eval ppl -m model.gguf -f book.txt -c 512 --kv bf16 --max-tokens 20000 --json\n"
    "  quire eval ppl -m model.gguf -f book.txt --kv streaming -c 50000 --segment 5000\n"
    "\nThe text is cut into windows of -c tokens. Each starts with an empty cache and, where the model wants "
    "one,\n"
    "the begin token, and every token but a window's first is scored. Recipes that drop rows or leave some "
    "out do so between steps: "
    "give\n"
    "--step 1 to measure what single tokens see.";

struct PplOptions {
  ModelOptions model;
  EvalTextOptions text;
  int64_t window = 2048;
  int64_t max_tokens = 0;
  int64_t step = 0;
  int64_t segment = 0;
  bool json = false;
};

void print(const PplOptions& options, const PerplexityOptions& measure, const Engine& engine,
           const Perplexity& result, size_t n_tokens, double seconds) {
  const std::string recipe = measure.recipe.text();
  if (options.json) {
    write_json({{"model", options.model.path},
                {"recipe", recipe},
                {"threads", engine.n_threads()},
                {"isa", Engine::isa()},
                {"precise", options.model.precise},
                {"window_tokens", options.window},
                {"tokens", n_tokens},
                {"begin_token", measure.begin_token ? nlohmann::ordered_json(*measure.begin_token) : nullptr},
                {"windows", result.n_windows},
                {"scored_tokens", result.n_scored},
                {"perplexity", result.perplexity},
                {"mean_nll", result.mean_nll},
                {"standard_error", result.standard_error},
                {"total_nll", result.total_nll},
                {"segment_tokens", options.segment},
                {"segment_perplexity", result.segment_perplexity},
                {"seconds", seconds}});
    return;
  }
  write_out("perplexity " + fixed(result.perplexity, 4) + " ± " +
            fixed(result.perplexity * result.standard_error, 4) + " (mean negative log-likelihood " +
            fixed(result.mean_nll, 6) + " ± " + fixed(result.standard_error, 6) + " over " +
            std::to_string(result.n_scored) + " tokens in " + std::to_string(result.n_windows) +
            " windows of " + std::to_string(options.window) + ", recipe " + recipe + ", " +
            fixed(static_cast<double>(n_tokens) / seconds, 1) + " tokens/s)\n");
  for (size_t i = 0; i < result.segment_perplexity.size(); ++i) {
    write_out("  from token " + std::to_string(i * static_cast<size_t>(options.segment)) + ": perplexity " +
              fixed(result.segment_perplexity[i], 4) + "\n");
  }
}

int run(const PplOptions& options) {
  check_range("--ctx-size", options.window, 2, int64_t{1} << 32);
  check_range("--max-tokens", options.max_tokens, 0, int64_t{1} << 40);
  check_range("--step", options.step, 0, int64_t{1} << 32);
  check_range("--segment", options.segment, 0, int64_t{1} << 40);
  PerplexityOptions measure;
  measure.recipe = Recipe::parse(options.model.recipe);
  measure.window_tokens = static_cast<size_t>(options.window);
  measure.step_tokens = static_cast<size_t>(options.step);
  measure.segment_tokens = static_cast<size_t>(options.segment);
  const EvalText text(options.text);
  EngineOptions engine_options = options.model.engine_options();
  if (!measure.recipe.endless()) engine_options.rope.context_tokens = measure.window_tokens;
  Engine engine(options.model.path, engine_options);
  std::vector<int32_t> tokens = text.tokens(engine);
  measure.begin_token = text.begin_token(engine);
  if (options.max_tokens > 0 && tokens.size() > static_cast<size_t>(options.max_tokens)) {
    tokens.resize(static_cast<size_t>(options.max_tokens));
  }
  ProgressLine line("scoring " + std::to_string(tokens.size()) + " tokens", true);
  measure.progress = [&](double share) { line.show(share); };
  const auto start = std::chrono::steady_clock::now();
  const Perplexity result = measure_perplexity(engine, tokens, measure);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  print(options, measure, engine, result, tokens.size(), seconds.count());
  return kOk;
}

}  // namespace

Command add_eval_ppl(CLI::App& root) {
  CLI::App* eval = root.add_subcommand("eval",
                                       "Measure a model and its caches: perplexity (ppl), divergence (kl), "
                                       "planted facts (recall), RULER tasks (ruler), co-reference (coref), "
                                       "long generations (degeneration).");
  eval->require_subcommand(1);
  CLI::App* app = eval->add_subcommand("ppl", "Perplexity of a text, through the real cache.");
  auto options = std::make_shared<PplOptions>();
  add_eval_text_options(*app, options->text);
  add_begin_option(*app, options->text);
  app->add_option("-c,--ctx-size", options->window, "tokens of a window")
      ->type_name("N")
      ->capture_default_str();
  app->add_option("--max-tokens", options->max_tokens, "use only so many tokens; 0: all")
      ->type_name("N")
      ->capture_default_str();
  app->add_option("--step", options->step, "tokens that go through the cache together; 0: a whole window")
      ->type_name("N")
      ->capture_default_str();
  app->add_option("--segment", options->segment, "perplexity of every so many tokens apart, too; 0: not")
      ->type_name("N")
      ->capture_default_str();
  add_engine_options(*app, options->model);
  add_recipe_option(*app, options->model);
  app->add_flag("--json", options->json, "print one JSON object");
  app->footer(kEvalExamples);
  return {app, [options] { return run(*options); }};
}

}  // namespace quire::cli
