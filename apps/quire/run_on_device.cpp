#include "run_on_device.h"

#include <algorithm>
#include <chrono>
#include <optional>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/memory.h"
#include "commands.h"
#include "engine/vocabulary_reader.h"
#include "gpu/device_batch.h"
#include "gpu/device_model.h"
#include "gpu/generate.h"
#include "terminal.h"
#include "timing.h"
#include "weights/open_model.h"

namespace quire::cli {
namespace {

using Clock = std::chrono::steady_clock;

size_t context_of(const ModelOptions& options, const ModelConfig& config) {
  const size_t asked = options.session_options().context_tokens;
  if (asked <= config.context_tokens) return asked == 0 ? config.context_tokens : asked;
  throw Error("a context of " + std::to_string(asked) + " tokens is more than the " +
              std::to_string(config.context_tokens) + " that the model was loaded for");
}

gpu::BatchOptions batch_options(const DeviceRun& run, Engine& engine, size_t n_prompt, size_t context) {
  const SamplingOptions& sampling = run.sampling.options;
  gpu::BatchOptions options;
  options.recipe = run.model.session_options().recipe;
  options.context_tokens = n_prompt + std::min(context - n_prompt, run.sampling.token_limit());
  options.sampling = {sampling.temperature, sampling.top_k, sampling.top_p,
                      sampling.min_p,       sampling.seed,  {}};
  if (run.sampling.ignore_end) options.sampling.banned = end_tokens(engine.tokenizer());
  options.budget_bytes = run.model.engine_options().kv_budget_bytes;
  options.choice_tokens =
      std::min(static_cast<size_t>(engine.tokenizer().size()), engine.config().vocabulary);
  return options;
}

struct Figures {
  size_t n_prompt;
  double prefill_seconds;
  double load_seconds;
  size_t context_tokens;
};

double fetched_per_token(const gpu::DeviceBatch::Outside& outside) {
  return outside.per_step(outside.fetched * outside.record_bytes);
}

// As of a tier on the CPU, as far as there is such a thing here. A token is a step: those that were asked for
// ahead fetch as well, and the first token, which comes with the prompt, does not.
void add_outside(const gpu::DeviceBatch::Outside& outside, nlohmann::ordered_json& object) {
  if (outside.outside_bytes == 0) return;
  const std::optional<double> hit_rate = outside.hit_rate();
  object["tier"] = {
      {"device", "pinned memory of the host"},
      {"outside_bytes", outside.outside_bytes},
      {"resident_bytes", outside.resident_bytes},
      {"steps", outside.steps},
      {"hit_rate", hit_rate ? nlohmann::ordered_json(*hit_rate) : nlohmann::ordered_json(nullptr)},
      {"fetched_bytes_per_token", fetched_per_token(outside)},
      {"rows_read_in_place_per_token", outside.per_step(outside.in_place)}};
}

std::string outside_text(const gpu::DeviceBatch::Outside& outside) {
  const std::optional<double> hit_rate = outside.hit_rate();
  std::string text = " · outside " + megabytes(outside.outside_bytes) + ", fetched " +
                     fixed(fetched_per_token(outside) / 1e6, 2) + " MB/token, " +
                     (hit_rate ? fixed(100 * *hit_rate, 1) : "-") + " % there";
  if (outside.in_place > 0) {
    text += ", " + fixed(outside.per_step(outside.in_place), 0) + " rows/token read in place";
  }
  return text;
}

nlohmann::ordered_json report(const DeviceRun& run, const gpu::DeviceModel& model,
                              const gpu::DeviceBatch& batch, const Recipe& recipe, const Figures& figures,
                              const Generation& generation) {
  return {{"model", run.model.path},
          {"recipe", recipe.text()},
          {"device", run.device},
          {"device_name", model.device_name()},
          {"prefill_mode", "layer-major"},
          {"seed", run.sampling.options.seed},
          {"context_tokens", figures.context_tokens},
          {"prompt_tokens", figures.n_prompt},
          {"generated_tokens", generation.tokens.size()},
          {"finish_reason", finish_reason_name(generation.finish)},
          {"load_seconds", figures.load_seconds},
          {"prefill_seconds", figures.prefill_seconds},
          {"decode_seconds", generation.seconds},
          {"prefill_tokens_per_s", per_second(figures.n_prompt, figures.prefill_seconds)},
          {"decode_tokens_per_s", generation.tokens_per_second()},
          {"kv_bytes", batch.cache_bytes()},
          {"kv_reserved_bytes", batch.reserved_bytes()},
          {"device_memory_bytes", batch.memory_bytes() + model.weight_bytes()},
          {"peak_rss_bytes", peak_resident_bytes()},
          {"text", generation.text},
          {"tokens", generation.tokens}};
}

void write_figures(const DeviceRun& run, const gpu::DeviceModel& model, const gpu::DeviceBatch& batch,
                   const gpu::DeviceBatch::Outside& outside, const Recipe& recipe, const Figures& figures,
                   const Generation& generation) {
  if (generation.finish == FinishReason::kContext) {
    write_note("the context of " + std::to_string(figures.context_tokens) + " tokens is full");
  }
  std::string line = "prompt " + std::to_string(figures.n_prompt) + " tokens " +
                     fixed(per_second(figures.n_prompt, figures.prefill_seconds), 1) +
                     " tokens/s · generated " + std::to_string(generation.tokens.size()) + " tokens " +
                     fixed(generation.tokens_per_second(), 1) + " tokens/s · KV " +
                     megabytes(batch.cache_bytes()) + " (" + recipe.text() + ") · peak memory " +
                     megabytes(peak_resident_bytes()) + ", device " +
                     megabytes(batch.memory_bytes() + model.weight_bytes()) + " (" + model.device_name() +
                     ") · load " + fixed(figures.load_seconds, 2) + " s";
  if (outside.outside_bytes > 0) line += outside_text(outside);
  if (run.sampling.options.temperature > 0) line += " · seed " + std::to_string(run.sampling.options.seed);
  write_note(line);
}

}  // namespace

void check_device_flags(const ModelOptions& model, const SamplingFlags& sampling, const KvFiles& files) {
  const SamplingOptions& options = sampling.options;
  const char* what = !files.load.empty() || !files.save.empty() ? "--load-kv and --save-kv"
                     : options.repeat_penalty != 1.0            ? "--repeat-penalty"
                     : model.step_tokens != 0                   ? "--chunk"
                     : model.ram_mb != 0                        ? "--kv-ram-mb"
                                                                : nullptr;
  if (what != nullptr)
    throw Error(std::string(what) + " is for --device cpu: the CUDA device does not do it");
}

int run_on_device(const DeviceRun& run, const std::function<std::vector<int32_t>(const Engine&)>& encode) {
  const int device = gpu::device_number(run.device);
  const auto start = Clock::now();
  const GgufFile file = open_model(run.model.path);
  const gpu::DeviceModel model = gpu::DeviceModel::load(file, run.model.engine_options().rope, device);
  Engine engine(file, run.model.engine_options());
  const std::vector<int32_t> tokens = encode(engine);
  const size_t context = context_of(run.model, engine.config());
  if (tokens.size() > context) {
    throw Error("the prompt has " + std::to_string(tokens.size()) + " tokens, but the context holds only " +
                std::to_string(context));
  }
  const gpu::BatchOptions options = batch_options(run, engine, tokens.size(), context);
  gpu::DeviceBatch batch(model, options, engine.facts(options.recipe));
  Figures figures = {tokens.size(), 0, seconds_since(start), context};
  const auto prompt_start = Clock::now();
  batch.prefill(0, tokens);
  figures.prefill_seconds = seconds_since(prompt_start);

  OnText on_text;
  if (!run.json) on_text = [](std::string_view piece) { write_out(piece); };
  const GenerateOptions generate_options = {run.sampling.token_limit(), run.sampling.stops,
                                            &interrupt_flag()};
  const Generation generation =
      gpu::generate(batch, engine.tokenizer(), tokens.back(), context, generate_options, on_text);
  if (!run.json && !generation.text.ends_with('\n')) write_out("\n");
  const gpu::DeviceBatch::Outside outside = batch.take_outside();
  if (run.json) {
    nlohmann::ordered_json object = report(run, model, batch, options.recipe, figures, generation);
    add_outside(outside, object);
    write_json(object);
  } else {
    write_figures(run, model, batch, outside, options.recipe, figures, generation);
  }
  return generation.finish == FinishReason::kInterrupted ? kInterrupted : kOk;
}

}  // namespace quire::cli
