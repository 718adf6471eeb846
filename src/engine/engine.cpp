#include "engine/engine.h"

#include <algorithm>
#include <thread>

#include "base/error.h"
#include "engine/vocabulary_reader.h"
#include "kernels/ops.h"

namespace quire {
namespace {

int checked_threads(int n_threads) {
  if (n_threads == 0) return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  if (n_threads >= 1 && n_threads <= kMaxThreads) return n_threads;
  throw Error("the number of threads must be between 1 and " + std::to_string(kMaxThreads) + ", not " +
              std::to_string(n_threads));
}

// Refuses what will not load before the work of loading, and an unknown QUIRE_FORCE_ISA before both.
Tokenizer read_tokenizer(const GgufFile& file) {
  ops();
  const ModelConfig config = ModelConfig::read(file);
  Tokenizer tokenizer(read_vocabulary(file));
  if (static_cast<size_t>(tokenizer.size()) > config.vocabulary) {
    throw Error(file.path() + ": the tokenizer has " + std::to_string(tokenizer.size()) +
                " tokens but the model embeds only " + std::to_string(config.vocabulary));
  }
  return tokenizer;
}

}  // namespace

// Arguments are evaluated in no fixed order, and the clock has to be read before the file is opened; braces
// are evaluated from left to right.
Engine::Engine(const std::string& model_path, const EngineOptions& options)
    : Engine(OpenFile{Clock::now(), GgufFile::open(model_path)}, options) {}

Engine::Engine(const GgufFile& file, const EngineOptions& options) : Engine(file, options, Clock::now()) {}

Engine::Engine(const OpenFile& opened, const EngineOptions& options)
    : Engine(opened.file, options, opened.start) {}

Engine::Engine(const GgufFile& file, const EngineOptions& options, Clock::time_point start)
    : team_(checked_threads(options.n_threads)),
      pool_(options.kv_budget_bytes),
      tokenizer_(read_tokenizer(file)) {
  model_ = Model::load(file, team_, options.precision);
  read_chat_template(file);
  load_seconds_ = std::chrono::duration<double>(Clock::now() - start).count();
}

void Engine::read_chat_template(const GgufFile& file) {
  constexpr std::string_view kKey = "tokenizer.chat_template";
  if (file.find(kKey) == nullptr) {
    chat_template_error_ = "the model file has no chat template, so it can only continue raw text";
    return;
  }
  try {
    chat_template_ = ChatTemplate::recognise(file.get_string(kKey));
  } catch (const Error& error) {
    chat_template_error_ = error.what();  // only chat needs it
  }
}

const ChatTemplate& Engine::chat_template() const {
  if (!chat_template_) throw Error(chat_template_error_);
  return *chat_template_;
}

const char* Engine::isa() { return ops().name; }

void Engine::forward(std::span<const int32_t> tokens, Cache& cache, Workspace& workspace,
                     const std::function<void(double)>& progress) {
  const std::lock_guard lock(team_mutex_);
  model_.forward(tokens, cache, workspace, team_, progress);
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
