#include "engine/session.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/error.h"
#include "engine/endless_step.h"
#include "engine/session_file.h"
#include "model/token_ids.h"

namespace quire {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

bool is_set(const std::atomic<bool>* flag) {
  return flag != nullptr && flag->load(std::memory_order_relaxed);
}

size_t checked_chunk(const SessionOptions& options, size_t trained) {
  if (!options.recipe.endless()) return options.step_tokens;
  const size_t most = endless_step_tokens(options.recipe, trained);
  return options.step_tokens == 0 ? most : std::min(options.step_tokens, most);
}

}  // namespace

const char* finish_reason_name(FinishReason reason) {
  switch (reason) {
    case FinishReason::kEnd: return "stop";
    case FinishReason::kStopString: return "stop_string";
    case FinishReason::kLength: return "length";
    case FinishReason::kContext: return "context";
    case FinishReason::kBudget: return "kv_budget";
    case FinishReason::kInterrupted: return "interrupted";
  }
  return "";
}

size_t Session::checked_context(const SessionOptions& options, size_t loaded) {
  const size_t asked = options.context_tokens;
  if (options.recipe.endless()) return asked == 0 ? kEndless : asked;
  if (asked <= loaded) return asked == 0 ? loaded : asked;
  throw Error("a context of " + std::to_string(asked) + " tokens is more than the " + std::to_string(loaded) +
              " that the model was loaded for");
}

Session::Session(Engine& engine, const SessionOptions& options)
    : engine_(engine),
      options_(options),
      context_tokens_(checked_context(options, engine.config().context_tokens)),
      chunk_tokens_(checked_chunk(options, engine.config().context_tokens)),
      cache_(options.pool != nullptr ? engine.make_cache(options.recipe, *options.pool)
                                     : engine.make_cache(options.recipe)),
      logits_(engine.config().vocabulary) {}

uint64_t Session::full_f16_bytes() const {
  return cache_.geometry().cache_bytes(Recipe{Format::kF16, Format::kF16}, cache_.n_tokens());
}

// What the pool would hold at most while this cache grows to n tokens.
uint64_t Session::peak_bytes(size_t n_tokens) const {
  const uint64_t used = engine_.pool().account().firm_bytes();
  const uint64_t others = used - std::min(used, cache_.store().size_bytes() + cache_.step_bytes());
  return others + cache_.geometry().peak_bytes(options_.recipe, cache_.rows(), n_tokens, chunk_tokens_) +
         cache_.selector().step_bytes(n_tokens, static_cast<size_t>(engine_.n_threads()));
}

bool Session::budget_allows(size_t n_tokens) const {
  const uint64_t budget = engine_.pool().budget_bytes();
  return budget == 0 || peak_bytes(n_tokens) <= budget;
}

void Session::check_room(size_t n_tokens) const {
  if (n_tokens > context_tokens_) {
    throw Error("the prompt has " + std::to_string(n_tokens) + " tokens, but the context holds only " +
                std::to_string(context_tokens_));
  }
  if (!budget_allows(n_tokens)) {
    throw Error("the cache of " + std::to_string(n_tokens) + " tokens takes up to " +
                std::to_string(peak_bytes(n_tokens)) + " bytes, but the budget is " +
                std::to_string(engine_.pool().budget_bytes()));
  }
}

void Session::restore(const SavedSession& saved) {
  if (!tokens_.empty()) throw Error("a saved cache can be loaded into an empty session only");
  saved.check(*this);
  std::vector<int32_t> tokens = saved.tokens();
  std::vector<float> logits = saved.logits();
  saved.restore(cache_);  // the last that can throw
  tokens_ = std::move(tokens);
  logits_fresh_ = !logits.empty();
  if (logits_fresh_) logits_ = std::move(logits);
  last_step_tokens_ = 0;
}

PrefillResult Session::prefill(std::span<const int32_t> tokens, const PrefillOptions& options) {
  check_room(tokens_.size() + tokens.size());
  check_token_ids(tokens, engine_.config().vocabulary);
  const size_t n_before = tokens_.size();
  PrefillResult result;
  result.n_reused = cache_.n_tokens();
  const auto start = Clock::now();
  try {
    tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
    compute_pending(options, result);
    if (!result.interrupted && !tokens_.empty()) ensure_logits(nullptr);
  } catch (...) {
    crop(n_before);
    throw;
  }
  if (result.interrupted) crop(n_before);
  result.seconds = seconds_since(start);
  return result;
}

void Session::compute_pending(const PrefillOptions& options, PrefillResult& result) {
  const size_t n_pending = tokens_.size() - cache_.n_tokens();
  while (cache_.n_tokens() < tokens_.size()) {
    if (is_set(options.stop_flag)) {
      result.interrupted = true;
      return;
    }
    const size_t left = tokens_.size() - cache_.n_tokens();
    const size_t n = chunk_tokens_ == 0 ? left : std::min(left, chunk_tokens_);
    std::function<void(double)> progress;
    if (options.progress) {
      progress = [&, n](double share) {
        options.progress((static_cast<double>(n_pending - left) + share * static_cast<double>(n)) /
                         static_cast<double>(n_pending));
      };
    }
    compute(std::span(tokens_).subspan(cache_.n_tokens(), n), progress);
    result.n_computed += n;
  }
}

void Session::compute(std::span<const int32_t> tokens, const std::function<void(double)>& progress) {
  logits_fresh_ = false;
  last_step_tokens_ = 0;
  try {
    engine_.forward(tokens, cache_, workspace_, progress);
  } catch (...) {
    if (cache_.is_broken()) cache_.crop(0);  // the tokens are computed anew, if there is a next time
    throw;
  }
  last_step_tokens_ = tokens.size();
}

// Logits after the last token of the sequence. `counted`, if given, takes note of the step.
void Session::ensure_logits(Generation* counted) {
  if (tokens_.empty()) throw Error("there is nothing to continue: the prompt is empty");
  if (logits_fresh_ && cache_.n_tokens() == tokens_.size()) return;
  // After a crop the hidden state of the last token is gone: it is computed once more.
  if (cache_.n_tokens() == tokens_.size() && last_step_tokens_ == 0) cut_cache(tokens_.size() - 1);
  if (cache_.n_tokens() < tokens_.size()) {
    PrefillResult result;
    compute_pending({}, result);
    if (counted != nullptr) {
      ++counted->n_steps;
      counted->bytes_read += cache_.last_step().bytes_read;
      counted->tier.add(cache_.last_step().tier);
      counted->rows_read += cache_.last_step().rows_read;
    }
  }
  const size_t last_row = last_step_tokens_ - 1;
  engine_.logits({&last_row, 1}, workspace_, logits_.data());
  logits_fresh_ = true;
}

Generation Session::generate(Sampler& sampler, const GenerateOptions& options, const OnText& on_text) {
  TextOutput output(options.stops, on_text);
  Generation result;
  ensure_logits(nullptr);
  const auto start = Clock::now();
  result.finish = run_loop(sampler, options, output, result);
  output.finish();
  // A stop that waited for a longer one to be decided counts as well.
  if (output.stopped()) result.finish = FinishReason::kStopString;
  result.seconds = seconds_since(start);
  result.text = output.text();
  return result;
}

FinishReason Session::run_loop(Sampler& sampler, const GenerateOptions& options, TextOutput& output,
                               Generation& result) {
  const Tokenizer& tokenizer = engine_.tokenizer();
  const auto n_choices = static_cast<size_t>(tokenizer.size());
  while (true) {
    if (is_set(options.stop_flag)) return FinishReason::kInterrupted;
    if (result.tokens.size() >= options.max_tokens) return FinishReason::kLength;
    if (tokens_.size() >= context_tokens_) return FinishReason::kContext;
    if (!budget_allows(tokens_.size())) return FinishReason::kBudget;
    ensure_logits(&result);
    const int32_t id = sampler.sample(std::span(logits_).first(n_choices), tokens_);
    if (tokenizer.is_end_of_generation(id)) return FinishReason::kEnd;
    // A text begins where nothing is or a control token, such as that of a turn.
    const bool begins = tokens_.empty() || tokenizer.is_control(tokens_.back());
    tokens_.push_back(id);
    result.tokens.push_back(id);
    if (!tokenizer.is_control(id)) {
      output.push(begins ? tokenizer.first_token_bytes(id) : tokenizer.token_bytes(id));
    }
    if (output.stopped()) return FinishReason::kStopString;
  }
}

// Rows that cannot be had back (from a tier, within a budget, behind a window) are computed anew: all of
// them.
void Session::cut_cache(size_t n_tokens) {
  if (n_tokens < cache_.fixed_tokens()) n_tokens = 0;
  try {
    cache_.crop(n_tokens);
  } catch (const Error&) {
    cache_.crop(0);
  }
}

void Session::crop(size_t n_tokens) {
  if (n_tokens >= tokens_.size()) return;
  tokens_.resize(n_tokens);
  if (n_tokens < cache_.n_tokens()) {
    cut_cache(n_tokens);
    logits_fresh_ = false;
    last_step_tokens_ = 0;
  }
}

}  // namespace quire
