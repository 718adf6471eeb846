// quire eval kl: how far the predictions of recipes lie from those of the exact cache.
#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "commands.h"
#include "eval_report.h"
#include "eval_table.h"
#include "eval_text.h"
#include "options.h"
#include "study/divergence.h"
#include "terminal.h"

namespace quire::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kEvalKlExamples =
    "Examples:\n"
    "  quire eval kl -m model.gguf -f book.txt --kv turbo4,kivi4\n"
    "  quire eval kl -m model.gguf -f book.txt --kv 'turbo4(sink=0,tail=128),k=turbo4,v=turbo3,tail=128' "
    "--json\n"
    "\nThe prompt is computed in one step, the tokens after it one by one through the stored cache, beside "
    "recipe\n"
    "`full`. Commas stand between recipes, but for those in parentheses; a recipe that begins with a "
    "setting\n"
    "(NAME=) goes on over the settings behind it, until one is given again: that one begins the next recipe.";

struct KlOptions : ReportOptions {
  EvalTextOptions text;
  int64_t prompt_tokens = 6000;
  int64_t eval_tokens = 1000;
  bool sizes_given = false;
};

// Unless they were asked for, the sizes shrink to what the text and the context hold, a seventh evaluated.
void fit_sizes(KlOptions& options, size_t n_tokens, const Engine& engine) {
  const auto most = static_cast<int64_t>(std::min(n_tokens, engine.config().context_tokens));
  if (options.sizes_given || options.prompt_tokens + options.eval_tokens <= most || most < 14) return;
  options.eval_tokens = most / 7;
  options.prompt_tokens = most - options.eval_tokens;
}

Json row_json(const Divergence& row) {
  return {{"recipe", row.recipe.text()},
          {"kl_mean", row.kl_mean},
          {"kl_p99", row.kl_p99},
          {"same_top1", row.same_top1},
          {"ppl", row.ppl},
          {"ppl_full", row.ppl_full},
          {"mass", row.mass},
          {"bits_per_value", row.bits_per_value},
          {"rows_read_per_token", row.rows_read_per_token},
          {"bytes_read_per_token", row.bytes_read_per_token},
          {"predictor_calls_per_token", row.predictor_calls_per_token},
          {"neighbour_rows_per_token", row.neighbour_rows_per_token}};
}

Json rows_json(const std::vector<Divergence>& rows) {
  Json list = Json::array();
  for (const Divergence& row : rows) list.push_back(row_json(row));
  return list;
}

Json report(const KlOptions& options, const Engine& engine, const std::vector<Divergence>& rows,
            double seconds) {
  Json json = report_head(options, engine);
  json.update(Json{{"prompt_tokens", options.prompt_tokens},
                   {"eval_tokens", options.eval_tokens},
                   {"rows", rows_json(rows)},
                   {"seconds", seconds}});
  return json;
}

std::string table(const std::vector<Divergence>& rows) {
  std::vector<std::vector<std::string>> lines;
  for (const Divergence& row : rows) {
    lines.push_back({row.recipe.text(), fixed(row.kl_mean, 5), fixed(row.kl_p99, 5), fixed(row.same_top1, 4),
                     fixed(row.ppl, 3), fixed(100 * row.ppl_change(), 2) + " %",
                     std::isnan(row.mass) ? "-" : fixed(row.mass, 3), fixed(row.bits_per_value, 2),
                     fixed(row.rows_read_per_token, 0), fixed(row.bytes_read_per_token / 1000, 1)});
  }
  return text_table({"recipe", "KL", "KL p99", "same top-1", "ppl", "change", "mass", "bits/value",
                     "rows/token", "kB/token"},
                    lines);
}

void print(const KlOptions& options, const Engine& engine, const std::vector<Divergence>& rows,
           double seconds) {
  if (options.json) {
    write_json(report(options, engine, rows, seconds));
    return;
  }
  write_out(table(rows) + "(full: perplexity " + fixed(rows[0].ppl_full, 3) + "; " +
            std::to_string(options.eval_tokens) + " tokens after " + std::to_string(options.prompt_tokens) +
            ", rows summed over layers and KV heads, " + fixed(seconds, 1) + " s)\n");
}

int run(KlOptions& options) {
  check_range("--prompt-tokens", options.prompt_tokens, 1, int64_t{1} << 32);
  check_range("--eval-tokens", options.eval_tokens, 1, int64_t{1} << 32);
  DivergenceOptions measure;
  measure.recipes = Recipe::parse_list(options.model.recipe);
  const EvalText text(options.text);
  Engine engine(options.model.path, options.model.engine_options());
  std::vector<int32_t> tokens = text.tokens(engine);
  if (const auto begin = text.begin_token(engine)) tokens.insert(tokens.begin(), *begin);
  fit_sizes(options, tokens.size(), engine);
  measure.prompt_tokens = static_cast<size_t>(options.prompt_tokens);
  measure.eval_tokens = static_cast<size_t>(options.eval_tokens);
  const auto [rows, seconds] = timed("comparing " + std::to_string(measure.recipes.size()) + " recipes",
                                     measure, [&] { return measure_divergence(engine, tokens, measure); });
  if (!options.csv_path.empty()) write_file(options.csv_path, csv_table(rows_json(rows)));
  print(options, engine, rows, seconds);
  return kOk;
}

}  // namespace

Command add_eval_kl(CLI::App& root) {
  CLI::App* app = root.get_subcommand("eval")->add_subcommand(
      "kl", "How far the predictions through coded caches lie from those of `full`.");
  auto options = std::make_shared<KlOptions>();
  add_eval_text_options(*app, options->text);
  add_begin_option(*app, options->text);
  const auto given = [options](const std::string&) { options->sizes_given = true; };
  app->add_option("--prompt-tokens", options->prompt_tokens, "tokens of the prompt")
      ->type_name("N")
      ->capture_default_str()
      ->each(given);
  app->add_option(
         "--eval-tokens", options->eval_tokens,
         "tokens behind it that are evaluated; without either, less of both for a shorter text or context")
      ->type_name("N")
      ->capture_default_str()
      ->each(given);
  add_report_options(*app, *options, "recipes to compare with full, with commas between them");
  app->footer(kEvalKlExamples);
  return {app, [options] { return run(*options); }};
}

}  // namespace quire::cli
