// quire eval coref: whether recipes read what a question ties back to.
#include <memory>
#include <vector>

#include <nlohmann/json.hpp>

#include "commands.h"
#include "eval_report.h"
#include "eval_table.h"
#include "options.h"
#include "study/coref.h"
#include "study/coref_text.h"
#include "terminal.h"

namespace quire::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kEvalCorefExamples =
    "Examples:\n"
    "  quire eval coref -m model.gguf --kv "
    "'butler(budget=64,local=16)','oracle(budget=64)','random(budget=64)'\n"
    "\nA place is brought in by an invented name, other subjects follow, and a question ties back to it. At "
    "the\n"
    "question's last token the rows of the name count that each layer and KV head reads: accuracy is the "
    "share\n"
    "of layers and heads that read all of them, coverage the share of rows. Texts are shorter than 512 "
    "tokens, so\n"
    "budgets are to be given in rows.";

struct CorefFlags : ReportOptions {
  int64_t n_items = 100;
  int64_t n_skipped = 0;
  int64_t seed = 0;
  int64_t most_tokens = kCorefTokens - 1;
};

Json rows_json(const std::vector<Coref>& rows) {
  Json list = Json::array();
  for (const Coref& row : rows) {
    list.push_back({{"recipe", row.recipe.text()},
                    {"accuracy", row.accuracy},
                    {"coverage", row.coverage},
                    {"read", row.read},
                    {"rank", row.rank},
                    {"rank_full", row.rank_full},
                    {"nll", row.nll},
                    {"nll_full", row.nll_full}});
  }
  return list;
}

std::string table(const std::vector<Coref>& rows) {
  std::vector<std::vector<std::string>> lines;
  for (const Coref& row : rows) {
    lines.push_back({row.recipe.text(), fixed(row.accuracy, 3), fixed(row.coverage, 3),
                     fixed(100 * row.read, 1) + " %", fixed(row.rank, 2), fixed(row.nll, 3)});
  }
  return text_table({"recipe", "accuracy", "coverage", "read", "rank", "nll"}, lines);
}

void print(const CorefFlags& flags, const Engine& engine, const std::vector<Coref>& rows, double seconds) {
  if (!flags.json) {
    write_out(table(rows) + "(" + std::to_string(flags.n_items) + " texts of " + fixed(rows[0].tokens, 0) +
              " tokens, names of " + fixed(rows[0].location_tokens, 1) + "; full: rank " +
              fixed(rows[0].rank_full, 2) + ", nll a token " + fixed(rows[0].nll_full, 3) + "; " +
              fixed(seconds, 1) + " s)\n");
    return;
  }
  Json json = report_head(flags, engine);
  json.update(Json{{"items", flags.n_items},
                   {"skipped", flags.n_skipped},
                   {"seed", flags.seed},
                   {"tokens", rows[0].tokens},
                   {"location_tokens", rows[0].location_tokens},
                   {"rows", rows_json(rows)},
                   {"seconds", seconds}});
  write_json(json);
}

int run(const CorefFlags& flags) {
  check_range("--items", flags.n_items, 1, static_cast<int64_t>(kMostCorefItems));
  check_range("--skip", flags.n_skipped, 0, static_cast<int64_t>(kMostCorefItems));
  check_range("--seed", flags.seed, 0, kMostSeed);
  check_range("--most-tokens", flags.most_tokens, 1, static_cast<int64_t>(kCorefTokens) - 1);
  CorefOptions measure;
  measure.recipes = Recipe::parse_list(flags.model.recipe);
  measure.n_items = static_cast<size_t>(flags.n_items);
  measure.first_item = static_cast<size_t>(flags.n_skipped);
  measure.seed = static_cast<uint64_t>(flags.seed);
  measure.most_tokens = static_cast<size_t>(flags.most_tokens);
  Engine engine(flags.model.path, flags.model.engine_options());
  const auto [rows, seconds] = timed("asking", measure, [&] { return measure_coref(engine, measure); });
  if (!flags.csv_path.empty()) write_file(flags.csv_path, csv_table(rows_json(rows)));
  print(flags, engine, rows, seconds);
  return kOk;
}

}  // namespace

Command add_eval_coref(CLI::App& root) {
  CLI::App* app = root.get_subcommand("eval")->add_subcommand(
      "coref", "Whether recipes read what a question ties back to, of places with invented names.");
  auto flags = std::make_shared<CorefFlags>();
  const auto add = [&](const char* name, auto& value, const char* text) {
    app->add_option(name, value, text)->type_name("N")->capture_default_str();
  };
  add("--items", flags->n_items, "texts, each with a place and a question");
  add("--skip", flags->n_skipped, "not the first so many of the seed's texts");
  add("-s,--seed", flags->seed, "seed of the texts");
  add("--most-tokens", flags->most_tokens, "most tokens of a text, its question and the name");
  add_report_options(*app, *flags, "recipes to measure, with commas between them");
  app->footer(kEvalCorefExamples);
  return {app, [flags] { return run(*flags); }};
}

}  // namespace quire::cli
