#include "engine/engine.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <span>
#include <thread>

#include "base/error.h"
#include "base/section_file.h"
#include "engine/butler_asset.h"
#include "engine/butler_file.h"
#include "engine/calibrate.h"
#include "engine/calibration_file.h"
#include "engine/calibration_text.h"
#include "engine/chat_template_reader.h"
#include "engine/vocabulary_reader.h"
#include "kernels/ops.h"
#include "weights/open_model.h"

namespace quire {
namespace {

int checked_threads(int n_threads) {
  if (n_threads == 0) return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  if (n_threads >= 1 && n_threads <= kMaxThreads) return n_threads;
  throw Error("the number of threads must be between 1 and " + std::to_string(kMaxThreads) + ", not " +
              std::to_string(n_threads));
}

// 0 stands for none.
uint64_t smallest_limit(uint64_t a, uint64_t b) { return a == 0 || b == 0 ? std::max(a, b) : std::min(a, b); }

// Refuses what will not load before the work of loading, and an unknown QUIRE_FORCE_ISA before both.
Tokenizer read_tokenizer(const GgufFile& file, const RopeOverrides& rope) {
  ops();
  const ModelConfig config = ModelConfig::read(file, rope);
  Tokenizer tokenizer = load_tokenizer(file);
  if (static_cast<size_t>(tokenizer.size()) > config.vocabulary) {
    throw Error(file.path() + ": the tokenizer has " + std::to_string(tokenizer.size()) +
                " tokens but the model embeds only " + std::to_string(config.vocabulary));
  }
  return tokenizer;
}

void add(Checksum& hash, const Rope& rope) {
  hash.add(std::as_bytes(std::span(rope.frequencies)));
  hash.add(std::as_bytes(std::span(&rope.attention_factor, 1)));
}

// Saved caches, calibrations and predictors hold or know keys as RoPE turned them, so one that turns
// otherwise is another model to them.
std::string fingerprint_with(const GgufFile& file, const RopeOverrides& overrides) {
  const ModelConfig config = ModelConfig::read(file, overrides);
  try {
    const ModelConfig own = ModelConfig::read(file);
    if (config.rope == own.rope && config.window_rope == own.window_rope) return file.fingerprint();
  } catch (const Error&) {
    // By itself the file lacks what was asked for.
  }
  const std::string of_file = file.fingerprint();
  Checksum hash;
  hash.add(std::as_bytes(std::span(of_file)));
  add(hash, config.rope);
  if (config.window_rope) add(hash, *config.window_rope);
  char digits[17];
  std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(hash.value()));
  return digits;
}

}  // namespace

// Arguments are evaluated in no fixed order, and the clock has to be read before the file is opened; braces
// are evaluated from left to right.
Engine::Engine(const std::string& model_path, const EngineOptions& options)
    : Engine(OpenFile{Clock::now(), open_model(model_path)}, options) {}

Engine::Engine(const GgufFile& file, const EngineOptions& options) : Engine(file, options, Clock::now()) {}

Engine::Engine(const OpenFile& opened, const EngineOptions& options)
    : Engine(opened.file, options, opened.start) {}

Engine::Engine(const GgufFile& file, const EngineOptions& options, Clock::time_point start)
    : on_note_(options.on_note),
      fingerprint_(file.fingerprint()),
      asset_folders_(options.asset_folders),
      team_(checked_threads(options.n_threads)),
      pool_(smallest_limit(options.kv_budget_bytes, options.kv_ram_bytes),
            options.kv_ram_bytes > 0 ? PagePool::Returned::kGivenBack : PagePool::Returned::kKept),
      tokenizer_(read_tokenizer(file, options.rope)) {
  for (const std::string& sentence : file.notes()) note(sentence);
  if (options.rope.given()) fingerprint_ = fingerprint_with(file, options.rope);
  if (!options.calibration_path.empty()) {
    calibration_ =
        std::make_shared<const Calibration>(load_calibration(options.calibration_path, fingerprint_));
  }
  if (!options.butler_path.empty()) {  // refused before the work of loading
    butler_ = std::make_shared<const ButlerWeights>(load_butler(
        options.butler_path, fingerprint_, butler_geometry(ModelConfig::read(file, options.rope))));
  }
  make_chat_template(file, options.chat_template);
  model_ = Model::load(file, team_, options.precision, options.rope);
  note_long_context();
  load_seconds_ = std::chrono::duration<double>(Clock::now() - start).count();
}

void Engine::note_long_context() const {
  const ModelConfig& c = config();
  if (c.context_tokens <= c.trained_tokens) return;
  note("a context of " + std::to_string(c.context_tokens) + " tokens is more than the " +
       std::to_string(c.trained_tokens) + " that the model was trained for (RoPE: " + c.rope_text + ")");
}

void Engine::make_chat_template(const GgufFile& file, const std::string& given) {
  try {
    chat_template_ = read_chat_template(file, tokenizer_, given);
  } catch (const Error& error) {
    if (!given.empty()) throw;
    chat_template_error_ = error.what();  // only chat needs it
  }
}

const ChatTemplate& Engine::chat_template() const {
  if (!chat_template_) throw Error(chat_template_error_);
  return *chat_template_;
}

const char* Engine::isa() { return ops().name; }

void Engine::note(const std::string& sentence) const {
  if (on_note_) on_note_(sentence);
}

std::shared_ptr<const Calibration> Engine::calibration() {
  const std::lock_guard lock(calibration_mutex_);
  if (calibration_ != nullptr) return calibration_;
  const std::string path = kept_calibration_path(fingerprint_);
  calibration_ = kept_calibration(path);
  if (calibration_ == nullptr) calibration_ = make_calibration(path);
  return calibration_;
}

// A damaged one is as good as none: it is measured again.
std::shared_ptr<const Calibration> Engine::kept_calibration(const std::string& path) const {
  std::error_code ignored;
  if (path.empty() || !std::filesystem::exists(path, ignored)) return nullptr;
  try {
    return std::make_shared<const Calibration>(load_calibration(path, fingerprint_));
  } catch (const Error& error) {
    note(std::string("the calibration that was kept cannot be used: ") + error.what());
    return nullptr;
  }
}

std::shared_ptr<const Calibration> Engine::make_calibration(const std::string& path) {
  const auto start = Clock::now();
  const std::string_view text = calibration_text();
  auto calibration =
      std::make_shared<const Calibration>(measure_calibration(*this, calibration_windows(*this, {&text, 1})));
  char seconds[32];
  std::snprintf(seconds, sizeof seconds, "%.1f", std::chrono::duration<double>(Clock::now() - start).count());
  const std::string done = std::string("calibrated the model in ") + seconds + " s";
  if (path.empty()) {
    note(done + ", not kept because there is no home folder");
    return calibration;
  }
  try {
    keep_calibration(*calibration, fingerprint_, path);
    note(done + ", kept in " + path);
  } catch (const Error& error) {
    note(done + ", not kept: " + error.what());
  }
  return calibration;
}

std::shared_ptr<const ButlerWeights> Engine::butler() {
  const std::lock_guard lock(butler_mutex_);
  if (butler_ != nullptr) return butler_;
  const std::string path = find_butler_asset(asset_folders_, fingerprint_);
  if (path.empty()) {
    throw Error(
        "there is no trained predictor of this model: make one with `quire train-butler` and name it "
        "with --butler FILE");
  }
  butler_ = std::make_shared<const ButlerWeights>(load_butler(path, fingerprint_, butler_geometry(config())));
  return butler_;
}

Cache Engine::make_cache(const Recipe& recipe) { return make_cache(recipe, pool_); }

ModelFacts Engine::facts(const Recipe& recipe) {
  return {recipe.needs_calibration() ? calibration() : nullptr, model_.key_biases(),
          std::make_shared<const RopeFrequencies>(model_.rope_frequencies()),
          recipe.needs_butler() ? butler() : nullptr, config().width};
}

Cache Engine::make_cache(const Recipe& recipe, PagePool& pool) {
  check_windows(recipe, config().geometry());  // before a calibration is measured for nothing
  return {recipe, config().geometry(), pool, facts(recipe)};
}

void Engine::forward(std::span<const int32_t> tokens, Cache& cache, Workspace& workspace,
                     const std::function<void(double)>& progress, RowObserver* observer) {
  const std::lock_guard lock(team_mutex_);
  model_.forward(tokens, cache, workspace, team_, progress, observer);
}

void Engine::logits(std::span<const size_t> rows, Workspace& workspace, float* out) {
  const std::lock_guard lock(team_mutex_);
  model_.logits(rows, workspace, team_, out);
}

void Engine::run(const std::function<void(Worker&)>& work) {
  const std::lock_guard lock(team_mutex_);
  team_.run(work);
}

}  // namespace quire
