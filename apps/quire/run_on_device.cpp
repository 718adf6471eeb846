#include "run_on_device.h"

#include <algorithm>
#include <chrono>
#include <limits>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/memory.h"
#include "engine/vocabulary_reader.h"
#include "terminal.h"
#include "timing.h"
#include "weights/open_model.h"

namespace quire::cli {
namespace {

using Clock = std::chrono::steady_clock;

// Of an endless recipe as many tokens as a batch counts.
constexpr size_t kEndlessTokens = size_t{1} << 24;

size_t context_of(const SessionOptions& options, const ModelConfig& config) {
  const size_t asked = options.context_tokens;
  if (options.recipe.endless()) return asked == 0 ? kEndlessTokens : asked;
  if (asked <= config.context_tokens) return asked == 0 ? config.context_tokens : asked;
  throw Error("a context of " + std::to_string(asked) + " tokens is more than the " +
              std::to_string(config.context_tokens) + " that the model was loaded for");
}

double fetched_per_token(const gpu::DeviceBatch::Outside& outside) {
  return outside.per_step(outside.fetched * outside.record_bytes);
}

// As of a tier on the CPU, as far as there is such a thing here. A token is a step: those that were asked for
// ahead fetch as well, and the first token, which comes with the prompt, does not.
nlohmann::ordered_json tier_report(const gpu::DeviceBatch::Outside& outside) {
  const std::optional<double> hit_rate = outside.hit_rate();
  return {{"device", "pinned memory of the host"},
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

}  // namespace

void check_device_flags(const ModelOptions& model) {
  const char* what = model.step_tokens != 0 ? "--chunk"
                     : model.ram_mb != 0    ? "--kv-ram-mb"
                     : model.precise        ? "--precise"
                                            : nullptr;
  if (what != nullptr)
    throw Error(std::string(what) + " is for --device cpu: the CUDA device does not do it");
}

OnDevice::OnDevice(const std::string& device, const ModelOptions& options)
    : device_(device), options_(options) {
  const auto start = Clock::now();
  const GgufFile file = open_model(options.path);
  model_ = gpu::DeviceModel::load(file, options.engine_options().rope, gpu::device_number(device));
  engine_ = std::make_unique<Engine>(file, options.engine_options());
  load_seconds_ = seconds_since(start);
}

gpu::DeviceSession& OnDevice::begin(const SamplingFlags& flags, const SessionOptions& session, size_t n_room,
                                    size_t n_tokens, bool has_file) {
  const auto start = Clock::now();
  const SamplingOptions& sampling = flags.options;
  const size_t context = context_tokens_ = context_of(session, engine_->config());
  gpu::BatchOptions options;
  recipe_ = options.recipe = session.recipe;
  options.context_tokens = std::min(std::max({n_tokens, n_room, size_t{1}}), std::max(context, size_t{1}));
  options.sampling = {sampling.temperature,    sampling.top_k,        sampling.top_p,
                      sampling.min_p,          sampling.seed,         {},
                      sampling.repeat_penalty, sampling.repeat_last_n};
  if (flags.ignore_end) options.sampling.banned = end_tokens(engine_->tokenizer());
  options.budget_bytes = options_.engine_options().kv_budget_bytes;
  options.choice_tokens =
      std::min(static_cast<size_t>(engine_->tokenizer().size()), engine_->config().vocabulary);
  session_ = std::make_unique<gpu::DeviceSession>(*engine_, *model_, options, options.context_tokens);
  load_seconds_ += seconds_since(start);
  if (has_file && !session_->batch().gives_rows()) {
    throw Error("--save-kv and --load-kv are for --device cpu where the recipe is '" + recipe_.text() + "'");
  }
  return *session_;
}

nlohmann::ordered_json OnDevice::report(const SamplingFlags& sampling, const PrefillResult& prefill,
                                        const Generation& generation) const {
  const gpu::DeviceBatch& batch = session_->batch();
  nlohmann::ordered_json object = {{"model", options_.path},
                                   {"recipe", recipe_.text()},
                                   {"device", device_},
                                   {"device_name", model_->device_name()},
                                   {"prefill_mode", "layer-major"},
                                   {"seed", sampling.options.seed},
                                   {"context_tokens", context_tokens_},
                                   {"prompt_tokens", prefill.n_computed},
                                   {"reused_tokens", prefill.n_reused},
                                   {"generated_tokens", generation.tokens.size()},
                                   {"finish_reason", finish_reason_name(generation.finish)},
                                   {"load_seconds", load_seconds_},
                                   {"prefill_seconds", prefill.seconds},
                                   {"decode_seconds", generation.seconds},
                                   {"prefill_tokens_per_s", per_second(prefill.n_computed, prefill.seconds)},
                                   {"decode_tokens_per_s", generation.tokens_per_second()},
                                   {"kv_bytes", batch.cache_bytes()},
                                   {"kv_reserved_bytes", batch.reserved_bytes()},
                                   {"device_memory_bytes", device_bytes()},
                                   {"peak_rss_bytes", peak_resident_bytes()},
                                   {"text", generation.text},
                                   {"tokens", generation.tokens}};
  if (const gpu::DeviceBatch::Outside outside = session_->take_outside(); outside.outside_bytes > 0) {
    object["tier"] = tier_report(outside);
  }
  return object;
}

void OnDevice::write_figures(const SamplingFlags& sampling, const PrefillResult& prefill,
                             const Generation& generation) const {
  if (generation.finish == FinishReason::kContext) {
    write_note("the context of " + std::to_string(context_tokens_) + " tokens is full");
  }
  std::string line = "prompt " + std::to_string(prefill.n_computed) + " tokens " +
                     fixed(per_second(prefill.n_computed, prefill.seconds), 1) + " tokens/s · generated " +
                     std::to_string(generation.tokens.size()) + " tokens " +
                     fixed(generation.tokens_per_second(), 1) + " tokens/s · KV " +
                     megabytes(session_->batch().cache_bytes()) + " (" + recipe_.text() + ") · peak memory " +
                     megabytes(peak_resident_bytes()) + ", device " + megabytes(device_bytes()) + " (" +
                     model_->device_name() + ") · load " + fixed(load_seconds_, 2) + " s";
  if (const gpu::DeviceBatch::Outside outside = session_->take_outside(); outside.outside_bytes > 0) {
    line += outside_text(outside);
  }
  if (sampling.options.temperature > 0) line += " · seed " + std::to_string(sampling.options.seed);
  write_note(line);
}

}  // namespace quire::cli
