// quire eval degeneration: whether long generations repeat themselves or come to an end.
#include <cmath>
#include <memory>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "commands.h"
#include "eval_report.h"
#include "eval_table.h"
#include "options.h"
#include "study/degeneration.h"
#include "study/long_prompts.h"
#include "study/repetition.h"
#include "terminal.h"

namespace quire::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kEvalDegenerationExamples =
    "Examples:\n"
    "  quire eval degeneration -m model.gguf --kv 'quire(budget=50%),quire(budget=30%)'\n"
    "  quire eval degeneration -m model.gguf -f prompts.txt --temp 0.8 -s 3 --kv 'h2o(budget=50%)' --json\n"
    "\nEach prompt, of a list that asks for long answers or a line of -f, is answered with up to -n tokens. "
    "A run\n"
    "repeats itself where the same 10 tokens stand in five places; `full` is always measured beside, as a "
    "small\n"
    "model repeats itself with every row read, too. Budgets by share are never below 256 rows, so short "
    "answers\n"
    "are read whole.";

struct DegenerationFlags : ReportOptions {
  std::string prompts_path;
  std::string texts_path;
  int64_t n_prompts = 20;
  int64_t n_skipped = 0;
  int64_t n_new_tokens = 1500;
  int64_t seed = 0;
  SamplingOptions sampling = {.temperature = 0};
  bool raw = false;
};

// The lines of the file that are not empty, or our own prompts.
std::vector<std::string> all_prompts(const std::string& path) {
  if (path.empty()) return {long_prompts().begin(), long_prompts().end()};
  std::vector<std::string> prompts;
  const std::string text = read_file(path);
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    if (text.find_first_not_of(" \t\r", begin) < end) prompts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  if (prompts.empty()) throw Error(path + " has no prompt");
  return prompts;
}

std::vector<std::string> chosen_prompts(const DegenerationFlags& flags) {
  const std::vector<std::string> all = all_prompts(flags.prompts_path);
  const auto first = static_cast<size_t>(flags.n_skipped);
  if (first >= all.size()) {
    throw Error("--skip " + std::to_string(first) + " leaves none of the " + std::to_string(all.size()) +
                " prompts");
  }
  const size_t n = std::min(static_cast<size_t>(flags.n_prompts), all.size() - first);
  const auto begin = all.begin() + static_cast<std::ptrdiff_t>(first);
  return {begin, begin + static_cast<std::ptrdiff_t>(n)};
}

Json rows_json(const std::vector<Degeneration>& rows) {
  Json list = Json::array();
  for (const Degeneration& row : rows) {
    list.push_back({{"recipe", row.recipe.text()},
                    {"repeats", row.repeats()},
                    {"ends", row.ends()},
                    {"tokens", row.tokens()},
                    {"tokens_to_repeat", row.tokens_to_repeat()},
                    {"tokens_as_full", row.tokens_as_full()},
                    {"distinct", row.distinct()},
                    {"tokens_per_s", row.tokens_per_s()},
                    {"read", row.read()},
                    {"rows_read_per_token", row.rows_read_per_token()},
                    {"bytes_read_per_token", row.bytes_read_per_token()}});
  }
  return list;
}

// A line for each run, in the order of recipes and prompts.
std::string texts_json(const DegenerationFlags& flags, const std::vector<Degeneration>& rows) {
  std::string lines;
  for (const Degeneration& row : rows) {
    for (size_t i = 0; i < row.runs.size(); ++i) {
      const LongRun& run = row.runs[i];
      const Json line = {{"recipe", row.recipe.text()},
                         {"prompt", static_cast<size_t>(flags.n_skipped) + i + 1},
                         {"finish_reason", finish_reason_name(run.finish)},
                         {"tokens", run.n_tokens},
                         {"tokens_to_repeat", run.n_to_repeat},
                         {"distinct", run.distinct},
                         {"text", run.text}};
      lines += line.dump() + "\n";
    }
  }
  return lines;
}

std::string share(double value) { return fixed(100 * value, 0) + " %"; }

std::string table(const std::vector<Degeneration>& rows) {
  std::vector<std::vector<std::string>> lines;
  for (const Degeneration& row : rows) {
    const double to_repeat = row.tokens_to_repeat();
    lines.push_back({row.recipe.text(), share(row.repeats()),
                     std::isnan(to_repeat) ? "-" : fixed(to_repeat, 0), share(row.ends()),
                     fixed(row.tokens(), 0), fixed(row.distinct(), 3), fixed(row.tokens_as_full(), 0),
                     fixed(row.tokens_per_s(), 1), share(row.read()), fixed(row.rows_read_per_token(), 0),
                     fixed(row.bytes_read_per_token() / 1000, 1)});
  }
  return text_table({"recipe", "repeats", "from", "ends", "tokens", "distinct", "as full", "tokens/s", "read",
                     "rows/token", "kB/token"},
                    lines);
}

void print(const DegenerationFlags& flags, const Engine& engine, const std::vector<Degeneration>& rows,
           double seconds) {
  const size_t n_prompts = rows[0].runs.size();
  if (!flags.json) {
    write_out(table(rows) + "(" + std::to_string(n_prompts) + " prompts, at most " +
              std::to_string(flags.n_new_tokens) + " tokens each; repeats: " + std::to_string(kRepeatTokens) +
              " tokens " + std::to_string(kRepeatTimes) + " times, from: the token at which; " +
              fixed(seconds, 1) + " s)\n");
    return;
  }
  Json json = report_head(flags, engine);
  json.update(Json{{"prompts", n_prompts},
                   {"skipped", flags.n_skipped},
                   {"max_new_tokens", flags.n_new_tokens},
                   {"temperature", flags.sampling.temperature},
                   {"seed", flags.seed},
                   {"rows", rows_json(rows)},
                   {"seconds", seconds}});
  write_json(json);
}

int run(const DegenerationFlags& flags) {
  check_range("--prompts", flags.n_prompts, 1, int64_t{1} << 32);
  check_range("--skip", flags.n_skipped, 0, int64_t{1} << 32);
  check_range("--n-predict", flags.n_new_tokens, 1, int64_t{1} << 32);
  check_range("--seed", flags.seed, 0, kMostSeed);
  DegenerationOptions measure;
  measure.recipes = Recipe::parse_list(flags.model.recipe);
  measure.prompts = chosen_prompts(flags);
  measure.first_number = static_cast<size_t>(flags.n_skipped);
  measure.chat = !flags.raw;
  measure.n_new_tokens = static_cast<size_t>(flags.n_new_tokens);
  measure.sampling = flags.sampling;
  measure.sampling.seed = static_cast<uint64_t>(flags.seed);
  measure.sampling.check();
  Engine engine(flags.model.path, flags.model.engine_options());
  const auto [rows, seconds] =
      timed("generating", measure, [&] { return measure_degeneration(engine, measure); });
  if (!flags.csv_path.empty()) write_file(flags.csv_path, csv_table(rows_json(rows)));
  if (!flags.texts_path.empty()) write_file(flags.texts_path, texts_json(flags, rows));
  print(flags, engine, rows, seconds);
  return kOk;
}

}  // namespace

Command add_eval_degeneration(CLI::App& root) {
  CLI::App* app = root.get_subcommand("eval")->add_subcommand(
      "degeneration", "Whether long generations repeat themselves or come to an end.");
  auto flags = std::make_shared<DegenerationFlags>();
  const auto add = [&](const char* name, auto& value, const char* text) {
    app->add_option(name, value, text)->type_name("N")->capture_default_str();
  };
  app->add_option("-f,--file", flags->prompts_path, "prompts, one a line (default: our own 20)")
      ->type_name("FILE");
  add("--prompts", flags->n_prompts, "so many of the prompts, at most");
  add("--skip", flags->n_skipped, "not the first so many of them");
  add("-n,--n-predict,--predict", flags->n_new_tokens, "most tokens to generate for a prompt");
  add("--temp,--temperature", flags->sampling.temperature, "temperature; 0: always the most likely token");
  add("--top-k", flags->sampling.top_k, "only the k most likely tokens; 0: no limit");
  add("--top-p", flags->sampling.top_p, "only the fewest tokens with this probability together; 1: no limit");
  add("--min-p", flags->sampling.min_p,
      "only tokens with this share of the best one's probability; 0: no limit");
  add("--repeat-penalty", flags->sampling.repeat_penalty, "penalty of recent tokens; 1: none");
  add("-s,--seed", flags->seed, "seed");
  app->add_flag("--raw", flags->raw, "continue the prompts as they are, without the chat template");
  app->add_option("--texts", flags->texts_path, "write what was generated to a file, a JSON object a line")
      ->type_name("FILE");
  add_report_options(*app, *flags, "recipes to measure, with commas between them");
  app->footer(kEvalDegenerationExamples);
  return {app, [flags] { return run(*flags); }};
}

}  // namespace quire::cli
