#include "kvpress_folder.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <span>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "eval_table.h"
#include "terminal.h"

namespace quire::cli {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr double kExactBits = 16;
constexpr const char* kDataset = "ruler";

// The rows of one recipe and length.
using Group = std::span<const RulerRow>;

std::vector<Group> groups_of(const std::vector<RulerRow>& rows) {
  std::vector<Group> groups;
  for (size_t first = 0; first < rows.size();) {
    size_t last = first;
    const auto belongs = [&](const RulerRow& row) {
      return row.recipe == rows[first].recipe && row.length_tokens == rows[first].length_tokens &&
             // The same recipe asked for twice is two runs.
             (last == first || row.task != rows[first].task);
    };
    while (last < rows.size() && belongs(rows[last])) ++last;
    groups.emplace_back(rows.data() + first, last - first);
    first = last;
  }
  return groups;
}

double mean_bits(Group group) {
  double sum = 0;
  for (const RulerRow& row : group) sum += row.bits_per_value;
  return sum / static_cast<double>(group.size());
}

std::string model_name(const std::string& path) { return fs::path(path).stem().string(); }

// "['a', 'b']"
std::string python_list(const std::vector<std::string>& texts) {
  std::string out;
  for (const std::string& text : texts)
    out.append(out.empty() ? "" : ", ").append("'").append(text).append("'");
  return "[" + std::move(out) + "]";
}

std::string predictions(Group group, double ratio) {
  Json lines = Json::array();
  for (const RulerRow& row : group) {
    for (const RulerAnswer& answer : row.answers) {
      lines.push_back({{"task", row.task->name},
                       {"question", answer.sample.question},
                       {"answer_prefix", answer.sample.answer_prefix},
                       {"answer", python_list(answer.sample.answers)},
                       {"max_new_tokens", row.task->max_new_tokens},
                       {"predicted_answer", answer.prediction},
                       {"compression_ratio", ratio}});
    }
  }
  return csv_table(lines);
}

double two_decimals(double value) { return std::round(value * 100) / 100; }

std::string metrics(Group group) {
  Json tasks;
  for (const RulerRow& row : group)
    tasks[std::string(row.task->name)] = {{"string_match", two_decimals(row.score)}};
  return tasks.dump(4) + "\n";
}

// The fields of kvpress' EvaluationConfig, in its order; a JSON value is a YAML value.
std::string config(const KvpressRun& run, Group group, double ratio) {
  const std::string recipe = group.front().recipe.text();
  const Json fields = {{"dataset", kDataset},
                       {"data_dir", std::to_string(group.front().length_tokens)},
                       {"model", model_name(run.model_path)},
                       {"device", "cpu"},
                       {"press_name", recipe},
                       {"compression_ratio", ratio},
                       {"key_channel_compression_ratio", nullptr},
                       {"fraction", 1.0},
                       {"max_new_tokens", nullptr},
                       {"max_context_length", nullptr},
                       {"compress_questions", false},
                       {"needle_depth", nullptr},
                       {"compression_interval", nullptr},
                       {"target_size", nullptr},
                       {"hidden_states_buffer_size", nullptr},
                       {"output_dir", run.output_dir},
                       {"log_level", "INFO"},
                       {"model_kwargs", Json::object()},
                       {"press_init_command", "quire --kv " + recipe},
                       {"seed", run.seed}};
  std::string out;
  for (const auto& [name, value] : fields.items())
    out.append(name).append(": ").append(value.dump()).append("\n");
  return out;
}

// A new folder; a number is added inside one that is there.
fs::path make_numbered_folder(const fs::path& path) {
  fs::path folder = path;
  std::error_code failed;
  for (int i = 1; fs::exists(folder, failed); ++i) folder = path / std::to_string(i);
  make_output_dir(folder);
  return folder;
}

}  // namespace

double compression_ratio(double bits_per_value) {
  return two_decimals(std::clamp(1 - bits_per_value / kExactBits, 0.0, 1.0));
}

void make_output_dir(const std::string& path) {
  std::error_code failed;
  fs::create_directories(path, failed);
  if (failed) throw Error(path + " cannot be made: " + failed.message());
}

Json write_kvpress_folders(const KvpressRun& run, const std::vector<RulerRow>& rows) {
  Json leaderboard = Json::array();
  for (const Group group : groups_of(rows)) {
    const double ratio = compression_ratio(mean_bits(group));
    const std::string model = model_name(run.model_path);
    std::string recipe = group.front().recipe.text();
    std::replace(recipe.begin(), recipe.end(), '/', '_');  // of a place's path: it is one folder
    const std::string length = std::to_string(group.front().length_tokens);
    std::string name = kDataset;
    for (const std::string& part : {length, model, recipe, fixed(ratio, 2)}) name.append("__").append(part);
    const fs::path folder = make_numbered_folder(fs::path(run.output_dir) / name);
    write_file(folder / "predictions.csv", predictions(group, ratio));
    write_file(folder / "metrics.json", metrics(group));
    write_file(folder / "config.yaml", config(run, group, ratio));
    double score = 0;
    for (const RulerRow& row : group) score += row.score / static_cast<double>(group.size());
    leaderboard.push_back({{"dataset", kDataset},
                           {"data_dir", length},
                           {"model", model},
                           {"method", recipe},
                           {"compression_ratio", ratio},
                           {"score", two_decimals(score)}});
  }
  write_file(fs::path(run.output_dir) / "leaderboard.csv", csv_table(leaderboard));
  return leaderboard;
}

}  // namespace quire::cli
