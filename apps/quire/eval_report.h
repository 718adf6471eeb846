// What the commands share that measure recipes side by side.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <utility>

#include <CLI/CLI.hpp>
#include <nlohmann/json_fwd.hpp>

#include "options.h"
#include "terminal.h"

namespace quire::cli {

// A number of JSON holds it exactly.
constexpr int64_t kMostSeed = int64_t{1} << 52;

struct ReportOptions {
  ModelOptions model;
  std::string csv_path;
  bool json = false;
};

// -m and its like, --kv, which must be given, --csv and --json. `recipes`: what --kv lists.
void add_report_options(CLI::App& app, ReportOptions& options, const char* recipes);

// Which model, how computed: what every report begins with.
nlohmann::ordered_json report_head(const ReportOptions& options, const Engine& engine);

// What measure() returns, and its seconds; with a progress line of that word, which the study's options feed.
template <typename StudyOptions, typename Measure>
auto timed(const std::string& word, StudyOptions& study, const Measure& measure) {
  ProgressLine line(word, true);
  study.progress = [&line](double share) { line.show(share); };
  const auto start = std::chrono::steady_clock::now();
  auto rows = measure();
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  study.progress = {};
  return std::pair{std::move(rows), seconds.count()};
}

}  // namespace quire::cli
