// quire calibrate: measures what calibrated recipes know of a model, and keeps it.
#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "commands.h"
#include "engine/calibrate.h"
#include "engine/calibration_file.h"
#include "engine/calibration_text.h"
#include "options.h"
#include "terminal.h"

namespace quire::cli {
namespace {

constexpr const char* kCalibrateExamples =
    "Examples:\n"
    "  quire calibrate -m model.gguf\n"
    "  quire calibrate -m model.gguf -f prose.txt -f code.py -o mine.calibration\n"
    "  quire run -m model.gguf -f book.txt --kv turbo4 --calibration mine.calibration\n"
    "\nRecipes such as turbo4 code keys and values about their means, as measured here once per model on a "
    "text\n"
    "that comes with Quire. Without this command it happens when such a recipe is first used.";

struct CalibrateOptions {
  ModelOptions model;
  std::vector<std::string> files;
  std::string output;
  bool json = false;
};

std::vector<std::string> read_texts(const CalibrateOptions& options) {
  std::vector<std::string> texts;
  for (const std::string& file : options.files) texts.push_back(read_file(file));
  if (options.files.empty()) texts.emplace_back(calibration_text());
  return texts;
}

// Where the result goes; an Error if it is nowhere, before anything is computed.
std::string output_path(const CalibrateOptions& options, const Engine& engine) {
  if (!options.output.empty()) return options.output;
  std::string path = kept_calibration_path(engine.fingerprint());
  if (path.empty()) throw Error("there is no home folder to keep the calibration in; give a file with -o");
  return path;
}

void save(const CalibrateOptions& options, const Calibration& calibration, const Engine& engine,
          const std::string& path) {
  if (options.output.empty()) {
    keep_calibration(calibration, engine.fingerprint(), path);
  } else {
    save_calibration(calibration, engine.fingerprint(), path);
  }
}

void print(const CalibrateOptions& options, const Engine& engine, const TokenWindows& windows,
           const std::string& path, const Calibration& calibration, double seconds) {
  if (options.json) {
    const auto [least, most] =
        std::minmax_element(calibration.key_balance.begin(), calibration.key_balance.end());
    write_json({{"model", options.model.path},
                {"fingerprint", engine.fingerprint()},
                {"threads", engine.n_threads()},
                {"isa", Engine::isa()},
                {"precise", options.model.precise},
                {"tokens", count_tokens(windows)},
                {"windows", windows.size()},
                {"seconds", seconds},
                {"balance_least", *least},
                {"balance_most", *most},
                {"file", path}});
    return;
  }
  write_out("calibrated on " + std::to_string(count_tokens(windows)) + " tokens in " + fixed(seconds, 1) +
            " s, written to " + printable(path) + "\n");
}

int run(const CalibrateOptions& options) {
  const EngineOptions engine_options = options.model.engine_options();
  const std::vector<std::string> texts = read_texts(options);
  Engine engine(options.model.path, engine_options);
  const std::string path = output_path(options, engine);
  const std::vector<std::string_view> views(texts.begin(), texts.end());
  const TokenWindows windows = calibration_windows(engine, views);
  const auto start = std::chrono::steady_clock::now();
  const Calibration calibration = [&] {
    ProgressLine line("calibrating on " + std::to_string(count_tokens(windows)) + " tokens", true);
    return measure_calibration(engine, windows, [&](double share) { line.show(share); });
  }();
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  save(options, calibration, engine, path);
  print(options, engine, windows, path, calibration, seconds.count());
  return kOk;
}

}  // namespace

Command add_calibrate(CLI::App& root) {
  CLI::App* app =
      root.add_subcommand("calibrate", "Measure a model for coded recipes such as turbo4, and keep it.");
  auto options = std::make_shared<CalibrateOptions>();
  app->add_option("-f,--file", options->files,
                  "text to measure on instead of Quire's own; may be given several times; - is stdin")
      ->type_name("FILE")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->allow_extra_args(false);
  app->add_option("-o,--output", options->output,
                  "file to write (default: where the model's calibration is looked for)")
      ->type_name("FILE");
  add_engine_options(*app, options->model);
  app->add_flag("--json", options->json, "print one JSON object");
  app->footer(kCalibrateExamples);
  return {app, [options] { return run(*options); }};
}

}  // namespace quire::cli
