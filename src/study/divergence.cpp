#include "study/divergence.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "base/error.h"
#include "cache/cache.h"
#include "model/model.h"
#include "model/token_ids.h"
#include "study/perplexity.h"
#include "study/stepper.h"

namespace quire {
namespace {

void check(const Engine& engine, std::span<const int32_t> tokens, const DivergenceOptions& options) {
  const ModelConfig& config = engine.config();
  const size_t n_needed = options.prompt_tokens + options.eval_tokens;
  if (options.recipes.empty()) throw Error("there is no recipe to compare");
  if (options.prompt_tokens == 0 || options.eval_tokens == 0) {
    throw Error("a comparison needs a prompt and tokens after it");
  }
  if (tokens.size() < std::max<size_t>(n_needed, options.prompt_tokens + 2)) {
    throw Error("the text has " + std::to_string(tokens.size()) + " tokens, but " +
                std::to_string(options.prompt_tokens) + " of prompt and " +
                std::to_string(options.eval_tokens) + " to evaluate are asked for");
  }
  if (n_needed > config.context_tokens) {
    throw Error(std::to_string(n_needed) + " tokens are more than the model's context of " +
                std::to_string(config.context_tokens));
  }
  check_token_ids(tokens.first(std::min(tokens.size(), n_needed + 1)), config.vocabulary);
}

// log of the sum of exp(logit).
double log_normalizer(std::span<const float> logits) {
  const double largest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - largest);
  return largest + std::log(sum);
}

// One cache that steps through the text, and what it was seen to do.
struct ComparedRun {
  ComparedRun(Engine& engine, const Recipe& recipe)
      : cache(engine.make_cache(recipe)), logits(engine.config().vocabulary) {
    cache.measure_mass(true);
  }

  void note_step() {
    tally.add_step(cache.last_step());
    mass_sum += cache.last_step().mass_sum;
    mass_count += cache.last_step().mass_count;
  }

  Cache cache;
  std::vector<float> logits;  // after the last token
  PerplexityTally perplexity;
  CacheTally tally;
  std::vector<double> kl;
  size_t n_same = 0;
  double mass_sum = 0;
  uint64_t mass_count = 0;
};

// Run 0 is the reference; a recipe that is equal to one before it shares its run.
class Comparison {
 public:
  Comparison(Engine& engine, std::span<const Recipe> recipes) : engine_(engine) {
    run_of(Recipe{});
    for (const Recipe& recipe : recipes) rows_.push_back(run_of(recipe));
  }

  size_t n_runs() const { return runs_.size(); }

  void prefill(size_t run, std::span<const int32_t> prompt) { forward(run, prompt); }

  // All runs take one token; `target`, if there is one, is the token behind it.
  void step(const int32_t& token, const int32_t* target) {
    for (size_t i = 0; i < runs_.size(); ++i) {
      forward(i, {&token, 1});
      runs_[i].note_step();
      const size_t row = 0;
      engine_.logits({&row, 1}, workspace_, runs_[i].logits.data());
    }
    engine_.run([&](Worker& worker) {
      worker.share(static_cast<int64_t>(runs_.size()), 1,
                   [&](int64_t i, int64_t) { compare(runs_[static_cast<size_t>(i)], target); });
    });
  }

  std::vector<Divergence> rows() const {
    std::vector<Divergence> all;
    for (const size_t run : rows_) all.push_back(summary(runs_[run]));
    return all;
  }

 private:
  size_t run_of(const Recipe& recipe) {
    for (size_t i = 0; i < runs_.size(); ++i) {
      if (runs_[i].cache.recipe() == recipe) return i;
    }
    runs_.emplace_back(engine_, recipe);
    return runs_.size() - 1;
  }

  void forward(size_t run, std::span<const int32_t> tokens) {
    engine_.forward(tokens, runs_[run].cache, workspace_);
  }

  void compare(ComparedRun& run, const int32_t* target) {
    const std::vector<float>& reference = runs_[0].logits;
    run.kl.push_back(&run == &runs_[0] ? 0 : kl_divergence(reference, run.logits));
    run.n_same += most_likely(reference) == most_likely(run.logits);
    if (target != nullptr) run.perplexity.add(negative_log_likelihood(run.logits, *target));
  }

  Divergence summary(const ComparedRun& run) const {
    Divergence row;
    const auto n = static_cast<double>(run.kl.size());
    row.recipe = run.cache.recipe();
    for (const double kl : run.kl) row.kl_mean += kl / n;
    row.kl_p99 = percentile(run.kl, 0.99);
    row.same_top1 = static_cast<double>(run.n_same) / n;
    row.ppl = run.perplexity.result().perplexity;
    row.ppl_full = runs_[0].perplexity.result().perplexity;
    CacheTally size;
    size.add_size(run.cache);
    row.bits_per_value = size.bits_per_value();
    if (run.mass_count > 0) row.mass = run.mass_sum / static_cast<double>(run.mass_count);
    if (row.recipe.drops()) row.mass = std::numeric_limits<double>::quiet_NaN();
    row.rows_read_per_token = run.tally.rows_per_token();
    row.bytes_read_per_token = run.tally.bytes_per_token();
    row.predictor_calls_per_token = run.tally.predictor_calls_per_token();
    row.neighbour_rows_per_token = run.tally.neighbour_rows_per_token();
    return row;
  }

  Engine& engine_;
  Workspace workspace_;
  std::vector<ComparedRun> runs_;
  std::vector<size_t> rows_;  // [recipe asked for] its run
};

}  // namespace

double kl_divergence(std::span<const float> reference, std::span<const float> other) {
  const double log_p = log_normalizer(reference);
  const double log_q = log_normalizer(other);
  double sum = 0;
  for (size_t i = 0; i < reference.size(); ++i) {
    const double p = static_cast<double>(reference[i]) - log_p;
    const double q = static_cast<double>(other[i]) - log_q;
    sum += std::exp(p) * (p - q);
  }
  return std::max(sum, 0.0);  // rounding alone can make it negative
}

double percentile(std::vector<double> values, double share) {
  std::sort(values.begin(), values.end());
  const double at = share * static_cast<double>(values.size() - 1);
  const auto below = static_cast<size_t>(at);
  const size_t above = std::min(below + 1, values.size() - 1);
  return values[below] + (at - static_cast<double>(below)) * (values[above] - values[below]);
}

std::vector<Divergence> measure_divergence(Engine& engine, std::span<const int32_t> tokens,
                                           const DivergenceOptions& options) {
  check(engine, tokens, options);
  Comparison comparison(engine, options.recipes);
  const size_t n_prompt = options.prompt_tokens;
  const size_t n_all = comparison.n_runs() * n_prompt + comparison.n_runs() * options.eval_tokens;
  size_t n_done = 0;
  const auto progress = [&](size_t n) {
    n_done += n;
    if (options.progress) options.progress(static_cast<double>(n_done) / static_cast<double>(n_all));
  };
  for (size_t run = 0; run < comparison.n_runs(); ++run) {
    comparison.prefill(run, tokens.first(n_prompt));
    progress(n_prompt);
  }
  for (size_t i = 0; i < options.eval_tokens; ++i) {
    const size_t next = n_prompt + i + 1;
    comparison.step(tokens[next - 1], next < tokens.size() ? &tokens[next] : nullptr);
    progress(comparison.n_runs());
  }
  return comparison.rows();
}

}  // namespace quire
