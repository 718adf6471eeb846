// What a program holds: a model with everything needed to use it. Sessions run on it.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/team.h"
#include "cache/cache.h"
#include "model/model.h"
#include "store/page.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace quire {

// Most threads that an engine may be asked to use.
constexpr int kMaxThreads = 512;

struct EngineOptions {
  int n_threads = 0;  // 0: as many as the machine runs at once
  Precision precision = Precision::kFast;
  uint64_t kv_budget_bytes = 0;  // of all caches together; 0: no limit
  // The same, for recipes whose rows lie in a tier: beside the pages it counts rows that were fetched and
  // what is under way, and memory that is not used goes back to the system. 0: no limit.
  uint64_t kv_ram_bytes = 0;
  std::string calibration_path = {};  // empty: the calibration kept for the model, made when it is missing
  std::string butler_path = {};       // of a trained predictor; empty: the model's in one of these folders
  std::vector<std::string> asset_folders = {};
  std::string chat_template = {};  // a Jinja text, or "chatml"; empty: the model's
  // The context that sequences are to have, and what else is asked for of positions.
  RopeOverrides rope = {};
  // Told, in one sentence each, what happens that takes time or needs to be known. Called on the thread that
  // asked for it; must not throw.
  std::function<void(const std::string& sentence)> on_note = {};
};

// A loaded model, its tokenizer and chat template, the threads that compute, and the pool that all caches
// take their pages from. Outlives its sessions. Sessions may be used from different threads at once: they
// take turns at the team, one forward pass each.
class Engine {
 public:
  // Opens and loads the file; nothing of it stays mapped. Throws Error of one sentence.
  Engine(const std::string& model_path, const EngineOptions& options);
  // The same for an open file, for example one in memory.
  Engine(const GgufFile& file, const EngineOptions& options);

  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  const Model& model() const { return model_; }
  const ModelConfig& config() const { return model_.config(); }
  const Tokenizer& tokenizer() const { return tokenizer_; }
  // Throws Error when the model has none, or one that is no template.
  const ChatTemplate& chat_template() const;
  PagePool& pool() { return pool_; }
  int n_threads() const { return team_.size(); }
  // Of the model file (GgufFile::fingerprint()) where positions are as it says; otherwise of both.
  const std::string& fingerprint() const { return fingerprint_; }
  // From opening the file to being ready.
  double load_seconds() const { return load_seconds_; }
  // The instruction set in use: "scalar", "avx2" or "avx512".
  static const char* isa();

  // What calibrated recipes need: from the file that the options named, else as it was kept by an earlier
  // run, else measured now, within seconds, and kept. Throws Error when it cannot be measured.
  std::shared_ptr<const Calibration> calibration();
  // The model's trained predictor, which recipes with select=butler need: from the file that the options
  // named, else as it lies in one of their folders. Throws Error where there is none, or it does not fit.
  std::shared_ptr<const ButlerWeights> butler();
  // What caches of the recipe need to know of the model. Throws Error where there is none of it.
  ModelFacts facts(const Recipe& recipe);
  // An empty cache of the model, with what the recipe needs to know of it.
  Cache make_cache(const Recipe& recipe);
  // The same with pages from another pool, which outlives the cache: one that gives its memory back.
  Cache make_cache(const Recipe& recipe, PagePool& pool);

  // Model::forward and Model::logits with the engine's team.
  void forward(std::span<const int32_t> tokens, Cache& cache, Workspace& workspace,
               const std::function<void(double)>& progress = {}, RowObserver* observer = nullptr);
  void logits(std::span<const size_t> rows, Workspace& workspace, float* out);
  // Other work for the team, see Team::run().
  void run(const std::function<void(Worker&)>& work);

 private:
  using Clock = std::chrono::steady_clock;
  struct OpenFile {
    Clock::time_point start;
    GgufFile file;
  };

  Engine(const OpenFile& opened, const EngineOptions& options);
  Engine(const GgufFile& file, const EngineOptions& options, Clock::time_point start);
  void note_long_context() const;
  void make_chat_template(const GgufFile& file, const std::string& given);
  void note(const std::string& sentence) const;
  std::shared_ptr<const Calibration> kept_calibration(const std::string& path) const;
  std::shared_ptr<const Calibration> make_calibration(const std::string& path);

  std::function<void(const std::string&)> on_note_;
  std::string fingerprint_;
  std::mutex calibration_mutex_;  // taken before team_mutex_
  std::shared_ptr<const Calibration> calibration_;
  const std::vector<std::string> asset_folders_;
  std::mutex butler_mutex_;
  std::shared_ptr<const ButlerWeights> butler_;
  std::mutex team_mutex_;  // a team runs one thing at a time
  Team team_;
  PagePool pool_;
  Tokenizer tokenizer_;
  Model model_;
  std::optional<ChatTemplate> chat_template_;
  std::string chat_template_error_;  // why there is none
  double load_seconds_ = 0;
};

}  // namespace quire
