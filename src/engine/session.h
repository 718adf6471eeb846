// One sequence on an engine: its tokens, its cache, and the loop that generates.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "cache/cache.h"
#include "engine/engine.h"
#include "engine/sampler.h"
#include "engine/text_output.h"
#include "model/model.h"

namespace quire {

class SavedSession;  // engine/session_file.h

struct SessionOptions {
  Recipe recipe = {};
  size_t context_tokens = 0;  // 0: what the model was loaded for; of an endless recipe: no limit
  size_t step_tokens = 0;     // tokens of a prefill step; 0: the whole prompt in one, layer by layer
  PagePool* pool = nullptr;   // where pages come from, without a budget; nullptr: the engine's
};

enum class FinishReason : uint8_t {
  kEnd,          // the model ended its text
  kStopString,   // a stop string came up
  kLength,       // as many tokens as asked for
  kContext,      // the context is full
  kBudget,       // the memory budget of the caches is used up
  kInterrupted,  // the stop flag was set
};

// "stop", "stop_string", "length", "context", "kv_budget", "interrupted"
const char* finish_reason_name(FinishReason reason);

struct PrefillOptions {
  std::function<void(double share)> progress = {};  // share of the work done, 0 to 1, now and then
  const std::atomic<bool>* stop_flag = nullptr;     // looked at between steps
};

struct PrefillResult {
  size_t n_reused = 0;       // tokens that were in the cache before
  size_t n_computed = 0;     // tokens computed now
  double seconds = 0;        // until the logits after the last one were there
  bool interrupted = false;  // by the flag; the session is as it was before
};

struct GenerateOptions {
  size_t max_tokens = std::numeric_limits<size_t>::max();
  std::vector<std::string> stops = {};
  const std::atomic<bool>* stop_flag = nullptr;
};

struct Generation {
  std::vector<int32_t> tokens;  // without the end token
  std::string text;             // what on_text was given, joined
  FinishReason finish = FinishReason::kEnd;
  size_t n_steps = 0;       // forward passes: the first token needs none, its logits are the prefill's
  double seconds = 0;       // from the prefill's logits to the end
  uint64_t bytes_read = 0;  // of the cache, over all steps
  TierCounts tier = {};     // the same, where rows lie in a tier
  uint64_t rows_read = 0;   // key rows, over all steps, layers and KV heads

  double tokens_per_second() const { return seconds > 0 ? static_cast<double>(n_steps) / seconds : 0; }
  double bytes_read_per_token() const {
    return n_steps > 0 ? static_cast<double>(bytes_read) / static_cast<double>(n_steps) : 0;
  }
};

// Not safe to use from two threads at once; different sessions of an engine are. The tokens of the sequence
// are those in the cache plus, after generating, at most one that was chosen but not computed yet: it is
// computed when something follows it.
class Session {
 public:
  // Throws Error when the context asked for is larger than the model was loaded for. The engine outlives the
  // session.
  Session(Engine& engine, const SessionOptions& options);

  const std::vector<int32_t>& tokens() const { return tokens_; }
  size_t context_tokens() const { return context_tokens_; }
  // Of an endless recipe, and no context was asked for.
  bool is_endless() const { return context_tokens_ == kEndless; }
  const Cache& cache() const { return cache_; }
  // "layer-major", or "chunked" when steps have a size.
  const char* prefill_mode() const { return chunk_tokens_ == 0 ? "layer-major" : "chunked"; }
  const Engine& engine() const { return engine_; }
  // After the last token in the cache; empty where they are not known.
  std::span<const float> logits() const {
    return logits_fresh_ ? std::span<const float>(logits_) : std::span<const float>();
  }
  // What f16 rows would take for the tokens in the cache.
  uint64_t full_f16_bytes() const;

  // Takes over a sequence that was saved, without computing anything; this one must be empty. Throws Error
  // for one of another model, recipe or calibration and for one that exceeds the context or the budget; the
  // session is then still empty.
  void restore(const SavedSession& saved);

  // Adds tokens to the sequence and computes all that are not computed. Throws Error before computing
  // anything when they do not fit the context or the budget, and the session is then as before.
  PrefillResult prefill(std::span<const int32_t> tokens, const PrefillOptions& options = {});

  // Adds tokens chosen by the sampler until something ends it. on_text gets the text as it is made; it may
  // throw, the session stays usable. Throws Error when the sequence is empty.
  Generation generate(Sampler& sampler, const GenerateOptions& options, const OnText& on_text = {});

  // Forgets all tokens from n_tokens on. Where these are coded the cache starts anew: what is left of the
  // tokens is computed again when something follows it.
  void crop(size_t n_tokens);

 private:
  static constexpr size_t kEndless = std::numeric_limits<uint32_t>::max();

  static size_t checked_context(const SessionOptions& options, size_t loaded);
  void check_room(size_t n_tokens) const;
  uint64_t peak_bytes(size_t n_tokens) const;
  bool budget_allows(size_t n_tokens) const;
  void cut_cache(size_t n_tokens);
  void compute_pending(const PrefillOptions& options, PrefillResult& result);
  void compute(std::span<const int32_t> tokens, const std::function<void(double)>& progress);
  void ensure_logits(Generation* counted);
  FinishReason run_loop(Sampler& sampler, const GenerateOptions& options, TextOutput& output,
                        Generation& result);

  Engine& engine_;
  SessionOptions options_;
  size_t context_tokens_;
  size_t chunk_tokens_;  // of a prefill step; 0: the whole prompt
  Cache cache_;
  Workspace workspace_;
  std::vector<int32_t> tokens_;
  std::vector<float> logits_;  // after the last token in the cache, if fresh
  bool logits_fresh_ = false;
  size_t last_step_tokens_ = 0;  // of the last forward pass
};

}  // namespace quire
