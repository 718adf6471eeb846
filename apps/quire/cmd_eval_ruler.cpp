// quire eval ruler: RULER's synthetic tasks through caches.
#include <algorithm>
#include <memory>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "commands.h"
#include "eval_report.h"
#include "eval_table.h"
#include "eval_text.h"
#include "kvpress_folder.h"
#include "options.h"
#include "study/ruler.h"
#include "terminal.h"

namespace quire::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kEvalRulerExamples =
    "Examples:\n"
    "  quire eval ruler -m model.gguf -f book.txt --kv full,quire\n"
    "  quire eval ruler -m model.gguf -f book.txt --kv turbo4 --tasks niah_single_2,vt --length 2048,4096 "
    "\\\n"
    "      --samples 5 --out results\n"
    "\nThe score is the share of the references that greedy text contains, in percent; nll is how unlikely "
    "the\n"
    "right answer is, in nats a token. --out writes what kvpress' evaluation writes. docs/eval.md says it "
    "exactly.";

constexpr int64_t kMostSamples = 100000;

struct RulerFlags : ReportOptions {
  EvalTextOptions text;
  std::vector<std::string> tasks;
  std::vector<int64_t> length_tokens = {4096};
  int64_t n_samples = 10;
  int64_t seed = 0;
  std::string out;
};

Json row_json(const RulerRow& row) {
  return {{"recipe", row.recipe.text()},
          {"length", row.length_tokens},
          {"task", row.task->name},
          {"samples", row.answers.size()},
          {"score", row.score},
          {"nll", row.nll},
          {"bits_per_value", row.bits_per_value},
          {"rows_read_per_token", row.rows_read_per_token},
          {"bytes_read_per_token", row.bytes_read_per_token}};
}

Json rows_json(const std::vector<RulerRow>& rows) {
  Json list = Json::array();
  for (const RulerRow& row : rows) list.push_back(row_json(row));
  return list;
}

std::string table(const std::vector<RulerRow>& rows, size_t n_tasks) {
  std::vector<std::vector<std::string>> lines;
  for (size_t first = 0; first < rows.size(); first += n_tasks) {
    double score = 0;
    double nll = 0;
    for (size_t i = first; i < first + n_tasks; ++i) {
      const RulerRow& row = rows[i];
      score += row.score / static_cast<double>(n_tasks);
      nll += row.nll / static_cast<double>(n_tasks);
      lines.push_back({row.recipe.text(), std::to_string(row.length_tokens), std::string(row.task->name),
                       fixed(row.score, 1), fixed(row.nll, 4), fixed(row.bits_per_value, 2),
                       fixed(row.rows_read_per_token, 0), fixed(row.bytes_read_per_token / 1000, 1)});
    }
    if (n_tasks == 1) continue;
    lines.push_back({rows[first].recipe.text(), std::to_string(rows[first].length_tokens), "mean",
                     fixed(score, 1), fixed(nll, 4), "", "", ""});
  }
  return text_table({"recipe", "length", "task", "score", "nll", "bits/value", "rows/token", "kB/token"},
                    lines);
}

void print(const RulerFlags& flags, const Engine& engine, const std::vector<RulerRow>& rows, size_t n_tasks,
           double seconds) {
  if (!flags.json) {
    write_out(table(rows, n_tasks) + "(" + std::to_string(flags.n_samples) + " samples of each task, " +
              fixed(seconds, 1) + " s)\n");
    return;
  }
  Json json = report_head(flags, engine);
  json.update(Json{{"seed", flags.seed}, {"rows", rows_json(rows)}, {"seconds", seconds}});
  write_json(json);
}

RulerOptions ruler_options(const RulerFlags& flags) {
  check_range("--samples", flags.n_samples, 1, kMostSamples);
  check_range("--seed", flags.seed, 0, kMostSeed);
  RulerOptions options;
  options.recipes = Recipe::parse_list(flags.model.recipe);
  options.length_tokens.clear();
  for (const int64_t n : flags.length_tokens) {
    check_range("--length", n, 1, kMostTokens);
    options.length_tokens.push_back(static_cast<size_t>(n));
  }
  for (const std::string& name : flags.tasks) {
    const RulerTask& task = ruler_task(name);
    if (std::count(options.tasks.begin(), options.tasks.end(), &task) > 0) {
      throw Error("the task " + name + " is asked for twice");
    }
    options.tasks.push_back(&task);
  }
  if (flags.tasks.empty()) {
    for (const RulerTask& task : ruler_tasks()) options.tasks.push_back(&task);
  }
  options.n_samples = static_cast<size_t>(flags.n_samples);
  options.seed = static_cast<uint64_t>(flags.seed);
  return options;
}

int run(const RulerFlags& flags) {
  RulerOptions measure = ruler_options(flags);
  const EvalText text(flags.text);
  if (!flags.out.empty()) make_output_dir(flags.out);
  Engine engine(flags.model.path, flags.model.engine_options());
  const auto [rows, seconds] =
      timed("answering", measure, [&] { return measure_ruler(engine, text.text(engine), measure); });
  if (!flags.csv_path.empty()) write_file(flags.csv_path, csv_table(rows_json(rows)));
  if (!flags.out.empty()) write_kvpress_folders({flags.out, flags.model.path, measure.seed}, rows);
  print(flags, engine, rows, measure.tasks.size(), seconds);
  return kOk;
}

}  // namespace

Command add_eval_ruler(CLI::App& root) {
  CLI::App* app = root.get_subcommand("eval")->add_subcommand(
      "ruler", "RULER's synthetic tasks (needles, variables, words), answered through caches.");
  auto flags = std::make_shared<RulerFlags>();
  add_eval_text_options(*app, flags->text);
  const auto add = [&](const char* name, auto& value, const char* text) {
    return app->add_option(name, value, text)->type_name("N")->capture_default_str();
  };
  app->add_option("--tasks", flags->tasks, "tasks, with commas between them (default: all eleven)")
      ->type_name("TASK")
      ->delimiter(',')
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->allow_extra_args(false);
  add("--length", flags->length_tokens, "tokens of prompt and answer; several with commas")
      ->delimiter(',')
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->allow_extra_args(false);
  add("--samples", flags->n_samples, "samples of each task and length");
  add("-s,--seed", flags->seed, "seed of the samples");
  add_report_options(*app, *flags, "recipes to measure, with commas between them");
  app->add_option("--out", flags->out, "folder to write results to in kvpress' form")->type_name("DIR");
  app->footer(kEvalRulerExamples);
  return {app, [flags] { return run(*flags); }};
}

}  // namespace quire::cli
