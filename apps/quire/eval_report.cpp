#include "eval_report.h"

#include <nlohmann/json.hpp>

namespace quire::cli {

void add_report_options(CLI::App& app, ReportOptions& options, const char* recipes) {
  add_engine_options(app, options.model);
  add_context_option(app, options.model);
  add_recipe_option(app, options.model);
  app.get_option("--kv")->required()->description(recipes);
  app.add_option("--csv", options.csv_path, "write the figures to a file, too")->type_name("FILE");
  app.add_flag("--json", options.json, "print one JSON object");
}

nlohmann::ordered_json report_head(const ReportOptions& options, const Engine& engine) {
  return {{"model", options.model.path},
          {"threads", engine.n_threads()},
          {"isa", Engine::isa()},
          {"precise", options.model.precise}};
}

}  // namespace quire::cli
