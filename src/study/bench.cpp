#include "study/bench.h"

#include <malloc.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <numeric>

#include "base/error.h"
#include "base/memory.h"
#include "cache/cache.h"
#include "engine/session.h"
#include "engine/vocabulary_reader.h"

namespace quire {
namespace {

using Clock = std::chrono::steady_clock;

uint64_t resident_bytes() {
  std::ifstream status("/proc/self/status");
  std::string line;
  while (std::getline(status, line)) {
    unsigned long long kibibytes = 0;
    if (std::sscanf(line.c_str(), "VmRSS: %llu kB", &kibibytes) == 1) return kibibytes * 1024;
  }
  return 0;
}

// Has the peak count from now on: proc(5), /proc/pid/clear_refs, value 5. What earlier runs freed goes back
// to the system first. False where the system does not permit it.
bool reset_peak_resident_bytes() {
  malloc_trim(0);
  std::ofstream file("/proc/self/clear_refs");
  file << "5" << std::flush;
  return static_cast<bool>(file);
}

bool fits_context(const Engine& engine, const BenchOptions& options, size_t n_prompt) {
  const size_t context = engine.config().context_tokens;
  return n_prompt <= context && options.n_new_tokens <= context - n_prompt;
}

void check(const Engine& engine, std::span<const int32_t> text, const BenchOptions& options) {
  if (options.entries.empty() || options.prompt_tokens.empty() || options.n_repeats == 0) {
    throw Error("there is nothing to time");
  }
  if (options.n_new_tokens < 2) {
    throw Error("a bench needs at least 2 new tokens, as the first of them comes with the prompt");
  }
  for (const size_t n : options.prompt_tokens) {
    if (n == 0) throw Error("a prompt needs at least one token");
    if (n > text.size()) {
      throw Error("the text has " + std::to_string(text.size()) + " tokens, fewer than the prompt of " +
                  std::to_string(n) + " that is asked for");
    }
    for (const BenchEntry& entry : options.entries) {
      if (fits_context(engine, options, n) || entry.recipe.endless()) continue;
      throw Error("a prompt of " + std::to_string(n) + " tokens and " + std::to_string(options.n_new_tokens) +
                  " new ones are more than the model's context of " +
                  std::to_string(engine.config().context_tokens) + ", which " + entry.mode +
                  " cannot go beyond");
    }
  }
}

bool is_exact(const Recipe& recipe) { return recipe == Recipe(recipe.key_format, recipe.value_format); }

// One sequence from its prompt on. The timed part of a step is the same for every recipe: forward pass,
// logits of the last token, choice of the next.
class TimedSequence {
 public:
  TimedSequence(Engine& engine, const Recipe& recipe, const BenchOptions& options)
      : session_(engine, {.recipe = recipe, .pool = &pool_}), sampler_(sampling(engine, options)) {
    run_.steps.reserve(options.n_new_tokens);
    run_.tokens.reserve(options.n_new_tokens);
  }

  // Computes the tokens given and what the cache lacks, and chooses the next one.
  void step(std::span<const int32_t> prompt) {
    const auto start = Clock::now();
    if (!prompt.empty()) session_.prefill(prompt);
    const Generation generation = session_.generate(sampler_, {.max_tokens = 1});
    const std::chrono::duration<double> seconds = Clock::now() - start;
    run_.tokens.insert(run_.tokens.end(), generation.tokens.begin(), generation.tokens.end());
    note(seconds.count());
  }

  BenchRun take() { return std::move(run_); }

 private:
  static SamplingOptions sampling(const Engine& engine, const BenchOptions& options) {
    SamplingOptions sampling = options.sampling;
    sampling.banned = end_tokens(engine.tokenizer());
    return sampling;
  }

  void note(double seconds) {
    const Cache& cache = session_.cache();
    run_.steps.push_back({.seconds = seconds,
                          .n_tokens = cache.n_tokens(),
                          .rows_read = cache.last_step().rows_read,
                          .bytes_read = cache.last_step().bytes_read,
                          .predictor_calls = cache.last_step().predictions.predictor_calls,
                          .kv_bytes = cache.size_bytes(),
                          .tier = cache.last_step().tier,
                          .residency = cache.residency()});
  }

  PagePool pool_;  // of its own, as the engine's keeps what it was given
  Session session_;
  Sampler sampler_;
  BenchRun run_;
};

class Bench {
 public:
  Bench(Engine& engine, std::span<const int32_t> text, const BenchOptions& options)
      : engine_(engine), text_(text), options_(options) {
    const size_t n_runs = options.n_repeats + (options.warm_up ? 1 : 0) + (options.quality ? 1 : 0);
    n_all_ = n_runs * options.entries.size() * options.prompt_tokens.size();
  }

  // All quality comes after all times: it fills the engine's pool, which gives no memory back.
  BenchResult run() {
    for (const size_t n : options_.prompt_tokens) time_prompt(n);
    for (size_t first = 0; options_.quality && first < result_.rows.size();
         first += options_.entries.size()) {
      if (!stopped()) measure_quality(std::span(result_.rows).subspan(first, options_.entries.size()));
    }
    result_.interrupted = stopped();
    if (!result_.interrupted) note_findings();
    return std::move(result_);
  }

 private:
  bool stopped() const {
    return options_.stop_flag != nullptr && options_.stop_flag->load(std::memory_order_relaxed);
  }

  void done(size_t n) {
    n_done_ += n;
    if (options_.progress) options_.progress(static_cast<double>(n_done_) / static_cast<double>(n_all_));
  }

  BenchRun run_once(const Recipe& recipe, size_t n_prompt) {
    if (recipe.needs_calibration()) engine_.calibration();  // measured at its first use, which is not a run's
    const bool was_reset = reset_peak_resident_bytes();
    const uint64_t before = resident_bytes();
    TimedSequence sequence(engine_, recipe, options_);
    sequence.step(text_.first(n_prompt));
    for (size_t i = 1; i < options_.n_new_tokens && !stopped(); ++i) sequence.step({});
    BenchRun run = sequence.take();
    run.resident_before_bytes = before;
    run.peak_resident_bytes = quire::peak_resident_bytes();
    run.peak_is_of_run = was_reset;
    return run;
  }

  void time_prompt(size_t n_prompt) {
    const size_t first_row = result_.rows.size();
    for (const BenchEntry& entry : options_.entries) {
      BenchRow& row = result_.rows.emplace_back();
      row.entry = entry;
      row.prompt_tokens = n_prompt;
      if (!options_.warm_up || stopped()) continue;
      run_once(entry.recipe, n_prompt);
      done(1);
    }
    for (size_t repeat = 0; repeat < options_.n_repeats; ++repeat) {
      for (size_t i = first_row; i < result_.rows.size() && !stopped(); ++i) {
        result_.rows[i].runs.push_back(run_once(result_.rows[i].entry.recipe, n_prompt));
        done(1);
      }
    }
  }

  // Of all entries at one prompt length, forced along the same tokens. `full`, which they are compared with,
  // ends where the context does.
  void measure_quality(std::span<BenchRow> rows) {
    const size_t n_prompt = rows.front().prompt_tokens;
    if (!fits_context(engine_, options_, n_prompt)) {
      result_.notes.push_back(
          "no quality at " + std::to_string(n_prompt) +
          " prompt tokens: beyond the model's context there is no full cache to compare with");
      return done(rows.size());
    }
    const bool continues = text_.size() >= n_prompt + options_.n_new_tokens;
    std::vector<int32_t> tokens(text_.begin(), text_.begin() + static_cast<std::ptrdiff_t>(n_prompt));
    if (continues) {
      tokens.assign(text_.begin(),
                    text_.begin() + static_cast<std::ptrdiff_t>(n_prompt + options_.n_new_tokens));
    } else {
      const std::vector<int32_t> generated = tokens_of_full(rows);
      tokens.insert(tokens.end(), generated.begin(), generated.end());
    }
    if (stopped()) return;
    DivergenceOptions measure;
    for (const BenchRow& row : rows) measure.recipes.push_back(row.entry.recipe);
    measure.prompt_tokens = n_prompt;
    measure.eval_tokens = options_.n_new_tokens - 1;
    const std::vector<Divergence> divergences = measure_divergence(engine_, tokens, measure);
    for (size_t i = 0; i < rows.size(); ++i) {
      rows[i].quality = divergences[i];
      rows[i].quality_text = continues ? QualityText::kContinuation : QualityText::kGenerated;
    }
    done(rows.size());
  }

  std::vector<int32_t> tokens_of_full(std::span<const BenchRow> rows) {
    for (const BenchRow& row : rows) {
      if (row.entry.recipe == Recipe{}) return row.runs.front().tokens;
    }
    return run_once(Recipe{}, rows.front().prompt_tokens).tokens;
  }

  void note_findings() {
    for (const BenchRow& row : result_.rows) note_window(row);
    const BenchRow& first = result_.rows.front();
    if (!first.runs.front().peak_is_of_run) {
      result_.notes.push_back(
          "the system does not let the peak of resident memory be reset, so it is that of the process since "
          "it "
          "began and not of each recipe");
    }
    const bool generated = std::any_of(result_.rows.begin(), result_.rows.end(), [](const BenchRow& row) {
      return row.quality && row.quality_text == QualityText::kGenerated;
    });
    if (generated) {
      result_.notes.push_back(
          "the text ends with the prompt, so quality is measured on what `full` generated: perplexities of a "
          "model's own text are low, and their changes larger than on a text of people");
    }
  }

  // A recipe that coded, dropped and left out nothing did what `full` does.
  void note_window(const BenchRow& row) {
    const BenchStep& end = row.last_step();
    if (is_exact(row.entry.recipe)) return;
    if (end.residency.cold_tokens > 0 || end.residency.dropped_tokens > 0) return;
    if (end.rows_read < engine_.config().geometry().rows_of(end.n_tokens)) return;
    result_.notes.push_back(
        "with " + std::to_string(row.prompt_tokens) + " prompt tokens and " +
        std::to_string(options_.n_new_tokens) + " new ones nothing left the window of " + row.entry.mode +
        ": all rows stayed exact and were read, so any difference in speed is not the recipe's");
  }

  Engine& engine_;
  std::span<const int32_t> text_;
  const BenchOptions& options_;
  BenchResult result_;
  size_t n_all_ = 0;
  size_t n_done_ = 0;
};

template <typename Value>
Spread spread_over(const std::vector<BenchRun>& runs, const Value& value) {
  std::vector<double> values;
  for (const BenchRun& run : runs) values.push_back(value(run));
  return spread_of(values);
}

// Of the first run's decode steps.
template <typename Value>
double average_step(const BenchRow& row, const Value& value) {
  const std::vector<BenchStep>& steps = row.runs.front().steps;
  double sum = 0;
  for (size_t i = 1; i < steps.size(); ++i) sum += static_cast<double>(value(steps[i]));
  return sum / static_cast<double>(steps.size() - 1);
}

}  // namespace

Spread spread_of(const std::vector<double>& values) {
  Spread spread;
  spread.median = percentile(values, 0.5);
  spread.min = *std::min_element(values.begin(), values.end());
  spread.max = *std::max_element(values.begin(), values.end());
  std::vector<double> differences;
  for (const double value : values) differences.push_back(std::abs(value - spread.median));
  spread.mad = percentile(differences, 0.5);
  return spread;
}

double BenchRun::decode_seconds() const {
  return std::accumulate(steps.begin() + 1, steps.end(), 0.0,
                         [](double sum, const BenchStep& step) { return sum + step.seconds; });
}

double BenchRun::decode_tokens_per_s() const {
  const double seconds = decode_seconds();
  return seconds > 0 ? static_cast<double>(steps.size() - 1) / seconds : 0;
}

Spread BenchRow::prefill_seconds() const {
  return spread_over(runs, [](const BenchRun& run) { return run.prefill_seconds(); });
}

Spread BenchRow::decode_tokens_per_s() const {
  return spread_over(runs, [](const BenchRun& run) { return run.decode_tokens_per_s(); });
}

uint64_t BenchRow::peak_resident_bytes() const {
  uint64_t peak = 0;
  for (const BenchRun& run : runs) peak = std::max(peak, run.peak_resident_bytes);
  return peak;
}

double BenchRow::rows_read_per_token() const {
  return average_step(*this, [](const BenchStep& step) { return step.rows_read; });
}

double BenchRow::bytes_read_per_token() const {
  return average_step(*this, [](const BenchStep& step) { return step.bytes_read; });
}

BenchResult run_bench(Engine& engine, std::span<const int32_t> text, const BenchOptions& options) {
  check(engine, text, options);
  return Bench(engine, text, options).run();
}

}  // namespace quire
