// Recipes timed side by side on the same prompt: prefill apart from decode, warm, taking turns, with what
// each keeps and reads and how close its predictions stay to those of recipe `full`.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cache/cache.h"
#include "engine/engine.h"
#include "engine/sampler.h"
#include "study/bench_modes.h"
#include "study/divergence.h"

namespace quire {

struct BenchOptions {
  std::vector<BenchEntry> entries = {};
  std::vector<size_t> prompt_tokens =
      {};  // so many first tokens of the text are a prompt, one after the other
  size_t n_new_tokens = 128;
  size_t n_repeats = 3;
  bool warm_up = true;  // an untimed run of each entry before the timed ones
  bool quality = true;
  SamplingOptions sampling = {.temperature = 0};
  std::function<void(double share)> progress = {};  // share of the runs done, after each
  const std::atomic<bool>* stop_flag = nullptr;     // looked at between steps
};

// The middle of some values, and how far they lie apart.
struct Spread {
  double median = 0;
  double min = 0;
  double max = 0;
  double mad = 0;  // median of the absolute differences from the median
};
// Of at least one value.
Spread spread_of(const std::vector<double>& values);

struct BenchStep {
  double seconds = 0;
  uint64_t n_tokens = 0;  // in the cache after the step
  uint64_t rows_read = 0;
  uint64_t bytes_read = 0;
  uint64_t predictor_calls = 0;
  uint64_t kv_bytes = 0;
  TierCounts tier = {};  // where rows lie in a tier
  Residency residency = {};
};

// One timed run: step 0 is the prefill with the choice of the first token, every further step a token.
struct BenchRun {
  std::vector<BenchStep> steps;
  std::vector<int32_t> tokens;         // generated, one a step
  uint64_t resident_before_bytes = 0;  // of the process; 0 where the system does not tell
  uint64_t peak_resident_bytes = 0;    // likewise
  bool peak_is_of_run = false;         // else it is of the process since it began

  double prefill_seconds() const { return steps.front().seconds; }
  double decode_seconds() const;
  double decode_tokens_per_s() const;
};

// Which tokens quality was measured on.
enum class QualityText : uint8_t {
  kContinuation,  // what follows the prompt in the text
  kGenerated,     // what `full` made of the prompt, where the text ends before
};

// One entry at one prompt length.
struct BenchRow {
  BenchEntry entry;
  size_t prompt_tokens = 0;
  std::vector<BenchRun> runs;
  std::optional<Divergence> quality;
  QualityText quality_text = QualityText::kContinuation;

  Spread prefill_seconds() const;
  Spread decode_tokens_per_s() const;
  uint64_t kv_bytes() const { return last_step().kv_bytes; }
  uint64_t peak_resident_bytes() const;  // the largest of the runs
  // Averages over the decode steps; all runs read the same.
  double rows_read_per_token() const;
  double bytes_read_per_token() const;
  // In the end.
  const Residency& residency() const { return last_step().residency; }
  const BenchStep& last_step() const { return runs.front().steps.back(); }
};

struct BenchResult {
  std::vector<BenchRow> rows;  // by prompt length, then in the order of the entries
  bool interrupted = false;
  // What one must know to read the figures rightly, a sentence each.
  std::vector<std::string> notes;
};

// Throws Error, before anything is computed, when the text is too short, a prompt and its new tokens exceed
// the model's context and a recipe is not endless, or there is nothing to time. End tokens are never chosen,
// so that all runs have the same number of steps. Every run has a cache, a pool and buffers of its own, freed
// before the next.
BenchResult run_bench(Engine& engine, std::span<const int32_t> text, const BenchOptions& options);

}  // namespace quire
