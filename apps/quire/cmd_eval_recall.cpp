// quire eval recall: how much of what stands in a prompt is still found through coded caches.
#include <algorithm>
#include <memory>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "commands.h"
#include "eval_report.h"
#include "eval_table.h"
#include "eval_text.h"
#include "options.h"
#include "study/recall.h"
#include "terminal.h"

namespace quire::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kEvalRecallExamples =
    "Examples:\n"
    "  quire eval recall -m model.gguf -f book.txt --kv turbo4,quire\n"
    "  quire eval recall -m model.gguf -f book.txt --kv quire --prompt-tokens 8000 --seeds 2 --json\n"
    "\nFacts (numbers, words, quotes) are planted among the sentences of the text. The text is computed in "
    "one\n"
    "step; each question and its answer follow token by token through the stored cache. The score is 1 "
    "where\n"
    "the answers are as likely as with `full`, and 0 where they are as likely as without the facts.\n"
    "docs/eval.md says it exactly.";

constexpr int64_t kMostSeeds = 1000;
constexpr int64_t kMostPromptTokens = int64_t{1} << 32;

struct RecallFlags : ReportOptions {
  EvalTextOptions text;
  std::vector<int64_t> prompt_tokens = {2000, 4000};
  int64_t n_facts = 16;
  int64_t n_seeds = 8;
  int64_t seed = 0;
};

void add_score(Json& json, const RecallScore& score) {
  json["score"] = score.score();
  json["nll"] = score.nll;
  json["nll_full"] = score.nll_full;
  json["nll_without"] = score.nll_without;
  json["exact"] = score.exact;
  json["answers"] = score.n_answers;
  json["answer_tokens"] = score.n_tokens;
}

void add_reads(Json& json, const Recall& row) {
  json["bits_per_value"] = row.bits_per_value;
  json["rows_read_per_token"] = row.rows_read_per_token;
  json["bytes_read_per_token"] = row.bytes_read_per_token;
}

Json row_json(const RecallFlags& flags, const Recall& row) {
  Json json = {{"recipe", row.recipe.text()}};
  add_score(json, row.all);
  add_reads(json, row);
  for (const FactKind kind : kFactKinds) {
    Json part = {{"kind", fact_kind_name(kind)}};
    add_score(part, row.by_kind[static_cast<size_t>(kind)]);
    if (part["answers"] != 0) json["kinds"].push_back(part);
  }
  for (size_t i = 0; i < row.by_length.size(); ++i) {
    Json part = {{"prompt_tokens", flags.prompt_tokens[i]}};
    add_score(part, row.by_length[i]);
    json["lengths"].push_back(part);
  }
  return json;
}

// A line for all answers of a recipe, for each kind and for each length.
Json csv_rows(const std::vector<Recall>& rows, const RecallFlags& flags) {
  Json lines = Json::array();
  const auto add = [&](const Recall& row, const std::string& part, const RecallScore& score) {
    if (score.n_answers == 0) return;
    Json line = {{"recipe", row.recipe.text()}, {"answers_of", part}};
    add_score(line, score);
    add_reads(line, row);
    lines.push_back(line);
  };
  for (const Recall& row : rows) {
    add(row, "all", row.all);
    for (const FactKind kind : kFactKinds)
      add(row, fact_kind_name(kind), row.by_kind[static_cast<size_t>(kind)]);
    for (size_t i = 0; i < row.by_length.size(); ++i) {
      add(row, std::to_string(flags.prompt_tokens[i]), row.by_length[i]);
    }
  }
  return lines;
}

std::string table(const std::vector<Recall>& rows, const RecallFlags& flags) {
  std::vector<std::string> titles = {"recipe", "score", "nll", "exact"};
  for (const FactKind kind : kFactKinds) titles.emplace_back(fact_kind_name(kind));
  for (const int64_t n : flags.prompt_tokens) titles.push_back("at " + std::to_string(n));
  for (const char* title : {"bits/value", "rows/token", "kB/token"}) titles.emplace_back(title);
  const auto score = [](const RecallScore& of) { return of.n_answers == 0 ? "-" : fixed(of.score(), 3); };
  std::vector<std::vector<std::string>> lines;
  for (const Recall& row : rows) {
    std::vector<std::string> line = {row.recipe.text(), score(row.all), fixed(row.all.nll, 4),
                                     fixed(row.all.exact, 3)};
    for (const RecallScore& part : row.by_kind) line.push_back(score(part));
    for (const RecallScore& part : row.by_length) line.push_back(score(part));
    line.push_back(fixed(row.bits_per_value, 2));
    line.push_back(fixed(row.rows_read_per_token, 0));
    line.push_back(fixed(row.bytes_read_per_token / 1000, 1));
    lines.push_back(std::move(line));
  }
  return text_table(titles, lines);
}

void print(const RecallFlags& flags, const Engine& engine, const std::vector<Recall>& rows, double seconds) {
  if (!flags.json) {
    const RecallScore& all = rows[0].all;
    write_out(table(rows, flags) + "(" + std::to_string(all.n_answers) + " answers of " +
              std::to_string(all.n_tokens) + " tokens, " + std::to_string(flags.n_seeds) +
              " seeds; nll a token: full " + fixed(all.nll_full, 4) + ", without the facts " +
              fixed(all.nll_without, 4) + "; " + fixed(seconds, 1) + " s)\n");
    return;
  }
  Json list = Json::array();
  for (const Recall& row : rows) list.push_back(row_json(flags, row));
  Json json = report_head(flags, engine);
  json.update(Json{{"prompt_tokens", flags.prompt_tokens},
                   {"facts", flags.n_facts},
                   {"seed", flags.seed},
                   {"seeds", flags.n_seeds},
                   {"rows", list},
                   {"seconds", seconds}});
  write_json(json);
}

RecallOptions recall_options(const RecallFlags& flags) {
  check_range("--facts", flags.n_facts, 1, static_cast<int64_t>(kMostFacts));
  check_range("--seeds", flags.n_seeds, 1, kMostSeeds);
  check_range("--seed", flags.seed, 0, kMostSeed);
  RecallOptions options;
  options.recipes = Recipe::parse_list(flags.model.recipe);
  options.prompt_tokens.clear();
  for (const int64_t n : flags.prompt_tokens) {
    check_range("--prompt-tokens", n, 1, kMostPromptTokens);
    options.prompt_tokens.push_back(static_cast<size_t>(n));
  }
  options.n_facts = static_cast<size_t>(flags.n_facts);
  options.n_seeds = static_cast<size_t>(flags.n_seeds);
  options.seed = static_cast<uint64_t>(flags.seed);
  return options;
}

int run(const RecallFlags& flags) {
  RecallOptions measure = recall_options(flags);
  const EvalText text(flags.text);
  Engine engine(flags.model.path, flags.model.engine_options());
  const auto [rows, seconds] =
      timed("asking", measure, [&] { return measure_recall(engine, text.text(engine), measure); });
  if (!flags.csv_path.empty()) write_file(flags.csv_path, csv_table(csv_rows(rows, flags)));
  print(flags, engine, rows, seconds);
  return kOk;
}

}  // namespace

Command add_eval_recall(CLI::App& root) {
  CLI::App* app = root.get_subcommand("eval")->add_subcommand(
      "recall", "How much of the facts planted in a text is found through coded caches, beside `full`.");
  auto flags = std::make_shared<RecallFlags>();
  add_eval_text_options(*app, flags->text);
  const auto add = [&](const char* name, auto& value, const char* text) {
    return app->add_option(name, value, text)->type_name("N")->capture_default_str();
  };
  add("--prompt-tokens", flags->prompt_tokens, "tokens of text, facts and question; several with commas")
      ->delimiter(',')
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->allow_extra_args(false);
  add("--facts", flags->n_facts, "facts in a prompt, each of them asked for");
  add("--seeds", flags->n_seeds, "prompts of each length");
  add("-s,--seed", flags->seed, "seed of the first of them");
  add_report_options(*app, *flags, "recipes to measure, with commas between them");
  app->footer(kEvalRecallExamples);
  return {app, [flags] { return run(*flags); }};
}

}  // namespace quire::cli
