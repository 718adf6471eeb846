#include "bench_on_device.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/atomic_file.h"
#include "base/device_error.h"
#include "commands.h"
#include "gpu/device_batch.h"
#include "gpu/device_model.h"
#include "terminal.h"
#include "weights/open_model.h"

namespace quire::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr uint64_t kSeed = 1;  // of random weights and rows

double median(std::vector<float> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

// The model, and what recipes need to know of it: of random weights that nothing is to be centred or
// balanced.
struct Subject {
  std::unique_ptr<Engine> engine;  // of a file
  std::optional<gpu::DeviceModel> model;

  ModelFacts facts(const Recipe& recipe) const {
    if (engine != nullptr) return engine->facts(recipe);
    const Geometry geometry = model->config().geometry();
    size_t n = 0;
    for (const size_t heads : geometry.n_kv_heads) n += heads * geometry.head_dim;
    auto plain = std::make_shared<Calibration>();
    *plain = {geometry, std::vector<float>(n, 0), std::vector<float>(n, 1), std::vector<float>(n, 0),
              std::vector<float>(n, 1)};
    return {plain};
  }
};

Subject subject_of(const ModelOptions& options, const DeviceBenchFlags& flags) {
  Subject subject;
  const int device = gpu::device_number(flags.device);
  if (!flags.random_weights.empty()) {
    subject.model = gpu::DeviceModel::random(flags.random_weights, kSeed, device);
    return subject;
  }
  const GgufFile file = open_model(options.path);
  subject.model = gpu::DeviceModel::load(file, options.engine_options().rope, device);
  subject.engine = std::make_unique<Engine>(file, options.engine_options());
  return subject;
}

struct Case {
  Recipe recipe;
  int batch;
  int64_t context;
  int64_t n_steps;
  bool prefill;
  uint64_t budget_bytes;
};

// Steps until places for fetched rows are full, or nearly.
int warm_steps(const Recipe& recipe) { return recipe.place.given() ? 40 : 3; }

// Of a prompt of arbitrary tokens: the first, in which plans for its lengths are made, and the next one.
std::pair<double, double> prefill_seconds(gpu::DeviceBatch& batch, int64_t n, size_t vocabulary) {
  std::vector<int32_t> tokens;
  for (int64_t i = 0; i < n; ++i)
    tokens.push_back(static_cast<int32_t>((1 + 7919 * i) % static_cast<int64_t>(vocabulary)));
  const auto time = [&] {
    const auto start = std::chrono::steady_clock::now();
    batch.prefill(0, tokens);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    batch.take_tokens();
    batch.crop(0, 0);
    return seconds;
  };
  const double first = time();
  return {first, time()};
}

// Of rows that lie outside the device: what a step fetched, by random queries over random rows, and what it
// would take to copy all of them every step. Of a row that is read in place it is not known which of its
// bytes were: a record at most.
void add_outside(gpu::DeviceBatch& batch, const gpu::DeviceBatch::Outside& seen, const ModelConfig& config,
                 const Case& c, double attention_ms, Json& row) {
  const double fetched = seen.per_step(seen.fetched * seen.record_bytes);
  const std::optional<double> hit_rate = seen.hit_rate();
  const double sweep_ms = batch.time_sweep();
  const double link_gb_per_s = static_cast<double>(seen.outside_bytes) / sweep_ms / 1e6;
  const double exact_bytes = 4.0 * static_cast<double>(c.context) * c.batch *
                             static_cast<double>(config.n_kv_heads * config.head_dim * config.n_layers);
  const double gb_per_s = fetched / attention_ms / 1e6;
  row["outside"] = {{"place", "pinned host memory"},
                    {"bytes", seen.outside_bytes},
                    {"resident_bytes", seen.resident_bytes},
                    {"rows_asked_per_step", seen.per_step(seen.asked)},
                    {"rows_fetched_per_step", seen.per_step(seen.fetched)},
                    {"rows_read_in_place_per_step", seen.per_step(seen.in_place)},
                    {"hit_rate", hit_rate ? Json(*hit_rate) : Json(nullptr)},
                    {"bytes_fetched_per_step", fetched},
                    {"most_bytes_read_in_place_per_step", seen.per_step(seen.in_place * seen.record_bytes)},
                    {"fetched_gb_per_s_of_attention", gb_per_s},
                    {"link_gb_per_s", link_gb_per_s},
                    {"share_of_link", gb_per_s / link_gb_per_s},
                    {"sweep_ms", sweep_ms},
                    {"exact_rows_sweep_ms", exact_bytes / link_gb_per_s / 1e6}};
}

Json measure(const Subject& subject, const Case& c) {
  const gpu::DeviceModel& model = *subject.model;
  gpu::BatchOptions options;
  options.recipe = c.recipe;
  options.n_sequences = c.batch;
  options.context_tokens = static_cast<size_t>(c.context);
  options.budget_bytes = c.budget_bytes;
  gpu::DeviceBatch batch(model, options, subject.facts(c.recipe));
  Json row = {{"model", model.label()}, {"device", model.device_name()}, {"recipe", c.recipe.text()},
              {"batch", c.batch},       {"context_tokens", c.context},   {"rows", "random"}};
  if (c.prefill) {
    const auto [first, seconds] = prefill_seconds(batch, c.context, model.config().vocabulary);
    row["first_prefill_seconds"] = first;
    row["prefill_seconds"] = seconds;
    row["prefill_tokens_per_s"] = static_cast<double>(c.context) / seconds;
  }
  // The last token of the context is the step's own.
  for (int i = 0; i < c.batch; ++i)
    batch.fill_random(i, static_cast<size_t>(c.context) - 1, kSeed + static_cast<uint64_t>(i));
  const auto n_steps = static_cast<int>(c.n_steps);
  batch.time_steps(warm_steps(c.recipe), false);
  batch.take_outside();
  const double ms = median(batch.time_steps(n_steps, false, kSeed + 1));
  const gpu::DeviceBatch::Outside outside = batch.take_outside();
  batch.time_steps(3, true);
  const double bare_ms = median(batch.time_steps(n_steps, true));
  const uint64_t weight_bytes = model.step_bytes();
  row["step_ms"] = ms;
  row["step_without_attention_ms"] = bare_ms;
  row["tokens_per_s"] = 1000.0 * c.batch / ms;
  row["weight_bytes_read"] = weight_bytes;
  row["weight_gb_per_s"] = static_cast<double>(weight_bytes) / bare_ms / 1e6;
  row["cache_bytes"] = batch.cache_bytes();
  if (!c.recipe.index && !c.recipe.select.given()) {
    row["gb_per_s"] = static_cast<double>(weight_bytes + batch.cache_bytes()) / ms / 1e6;
  }
  row["cache_memory_bytes"] = batch.cache_memory_bytes();
  row["device_memory_bytes"] = batch.memory_bytes() + model.weight_bytes();
  if (outside.outside_bytes > 0) add_outside(batch, outside, model.config(), c, ms - bare_ms, row);
  return row;
}

std::string line_of(const Json& row) {
  if (row.contains("error")) {
    return row["recipe"].get<std::string>() + " " + std::to_string(row["batch"].get<int>()) + " x " +
           std::to_string(row["context_tokens"].get<long long>()) + ": " + row["error"].get<std::string>() +
           "\n";
  }
  char line[320];
  std::snprintf(line, sizeof line,
                "%-26s %3d x %7lld  %8.3f ms a step  %9.1f tokens/s  without attention %7.3f ms  %s",
                row["recipe"].get<std::string>().c_str(), row["batch"].get<int>(),
                row["context_tokens"].get<long long>(), row["step_ms"].get<double>(),
                row["tokens_per_s"].get<double>(), row["step_without_attention_ms"].get<double>(),
                row.contains("gb_per_s") ? (fixed(row["gb_per_s"].get<double>(), 0) + " GB/s").c_str() : "");
  std::string text = line;
  if (row.contains("prefill_seconds")) {
    text += "  prefill " + fixed(row["prefill_seconds"].get<double>(), 3) + " s (the first " +
            fixed(row["first_prefill_seconds"].get<double>(), 3) + " s)";
  }
  if (row.contains("outside")) {
    const Json& outside = row["outside"];
    text += "\n  outside " + megabytes(outside["bytes"].get<uint64_t>()) + ", on the device " +
            megabytes(row["cache_memory_bytes"].get<uint64_t>()) + "; fetched " +
            megabytes(static_cast<uint64_t>(outside["bytes_fetched_per_step"].get<double>())) + " a step (" +
            (outside["hit_rate"].is_null() ? "-" : fixed(100 * outside["hit_rate"].get<double>(), 1)) +
            " % there), " + fixed(outside["rows_read_in_place_per_step"].get<double>(), 0) +
            " rows read in place, " + fixed(outside["fetched_gb_per_s_of_attention"].get<double>(), 1) +
            " of " + fixed(outside["link_gb_per_s"].get<double>(), 1) + " GB/s; all rows once " +
            fixed(outside["sweep_ms"].get<double>(), 0) + " ms, exact ones " +
            fixed(outside["exact_rows_sweep_ms"].get<double>(), 0) + " ms";
  }
  return text + "\n";
}

}  // namespace

void add_device_bench_options(CLI::App& app, DeviceBenchFlags& flags) {
  const auto add = [&](const char* name, auto& value, const char* text, const char* type) {
    return app.add_option(name, value, text)->type_name(type)->group("Device");
  };
  add("--device", flags.device, "cpu, or cuda[:N]: time steps of a batch on a GPU, over random rows",
      "DEVICE")
      ->capture_default_str();
  add("--random-weights", flags.random_weights,
      "with --device cuda, instead of -m: a model of this shape with random weights (llama-3.1-8b, "
      "llama-3.2-1b, "
      "qwen2.5-7b)",
      "SHAPE");
  for (auto* option :
       {add("--batch", flags.batches, "with --device cuda: sequences of a step (default: 1)", "N,N,..."),
        add("--context", flags.contexts, "with --device cuda: tokens of each sequence (default: 4096)",
            "N,N,...")}) {
    option->delimiter(',')->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)->allow_extra_args(false);
  }
  app.add_option("--kv-budget-mb", flags.budget_mb,
                 "with --device cuda: most memory of the device for the caches, in MB (default: no limit)")
      ->check(CLI::Range(0.0, 1e9))
      ->type_name("MB")
      ->group("Device");
  app.add_flag("--prefill", flags.prefill, "with --device cuda: time a prompt of that length, too")
      ->group("Device");
}

namespace {

// Cases of which the device has too little memory become rows that say so: those that fit are measured all
// the same. `is_whole` becomes false then.
Json measure_or_say(const Subject& subject, const Case& c, bool& is_whole) {
  try {
    return measure(subject, c);
  } catch (const DeviceError& error) {
    is_whole = false;
    return {{"model", subject.model->label()},
            {"recipe", c.recipe.text()},
            {"batch", c.batch},
            {"context_tokens", c.context},
            {"error", error.what()}};
  }
}

// What `bench` is told that means something on a device; the rest is of the CPU's benchmark.
constexpr const char* kMeant[] = {"--device",  "--random-weights", "--batch",          "--context",
                                  "--prefill", "--mode",           "--max-new-tokens", "--json",
                                  "--output",  "--model",          "--threads",        "--calibration",
                                  "--precise", "--help",           "--kv-budget-mb"};

bool is_rope(const std::string& name) { return name.starts_with("--rope") || name.starts_with("--yarn"); }

}  // namespace

void check_device_bench_flags(const CLI::App& app, const DeviceBenchFlags& flags) {
  for (const CLI::Option* option : app.get_options()) {
    if (option->count() == 0 || option->get_lnames().empty()) continue;
    const bool is_meant = std::any_of(std::begin(kMeant), std::end(kMeant),
                                      [&](const char* name) { return option->check_name(name); });
    const std::string name = "--" + option->get_lnames().front();
    if (flags.given() && !is_meant && !is_rope(name)) {
      throw Error(name + " is for --device cpu: on a device `quire bench` times steps over random rows");
    }
    if (!flags.random_weights.empty() && (is_rope(name) || name == "--calibration" || name == "--precise")) {
      throw Error(name + " is about a model's file, and --random-weights has none");
    }
    if (!flags.given() && option->get_group() == "Device" && name != "--device")
      throw Error(name + " needs --device cuda");
  }
}

int bench_on_device(const ModelOptions& model, const DeviceBenchFlags& flags, const DeviceBenchRun& run) {
  if (!flags.random_weights.empty() && !model.path.empty())
    throw Error("give -m or --random-weights, not both");
  if (flags.random_weights.empty() && model.path.empty())
    throw Error("give a model with -m, or --random-weights");
  const std::vector<Recipe> recipes = Recipe::parse_list(run.modes);
  const std::vector<int64_t> batches = flags.batches.empty() ? std::vector<int64_t>{1} : flags.batches;
  const std::vector<int64_t> contexts = flags.contexts.empty() ? std::vector<int64_t>{4096} : flags.contexts;
  check_range("--max-new-tokens", run.n_steps, 1, 1'000'000);
  for (const int64_t n : batches) check_range("--batch", n, 1, 256);
  for (const int64_t n : contexts) check_range("--context", n, 2, int64_t{1} << 24);
  std::optional<AtomicFile> file;
  if (!run.output.empty()) file.emplace(run.output);
  const Subject subject = subject_of(model, flags);
  Json rows = Json::array();
  bool is_whole = true;
  const auto finish = [&] {
    const Json object = {{"model", subject.model->label()}, {"rows", rows}};
    if (run.json) write_json(object);
    if (!file) return;
    const std::string text = object.dump(2) + "\n";
    file->write(std::as_bytes(std::span(text)));
    file->commit();
  };
  try {
    for (const int64_t batch : batches) {
      for (const int64_t context : contexts) {
        for (const Recipe& recipe : recipes) {
          const Case c = {recipe,        static_cast<int>(batch),
                          context,       run.n_steps,
                          flags.prefill, static_cast<uint64_t>(std::ceil(flags.budget_mb * 1e6))};
          rows.push_back(measure_or_say(subject, c, is_whole));
          if (!run.json) write_out(line_of(rows.back()));
        }
      }
    }
  } catch (const Error&) {        // of a recipe that the device does not do, say
    if (!rows.empty()) finish();  // nothing measured replaces no older result
    throw;
  }
  finish();
  return is_whole ? kOk : kNoDevice;
}

}  // namespace quire::cli
