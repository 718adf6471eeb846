#include "gpu/device_session.h"

#include <chrono>
#include <memory>

#include "base/error.h"
#include "engine/session_file.h"
#include "gpu/generate.h"

namespace quire::gpu {

namespace {

using Clock = std::chrono::steady_clock;

}  // namespace

DeviceSession::DeviceSession(Engine& engine, const DeviceModel& model, const BatchOptions& options,
                             size_t context_tokens)
    : engine_(engine),
      recipe_(options.recipe),
      draws_(options.sampling.temperature > 0),
      changes_logits_(!options.sampling.banned.empty() || options.sampling.penalises()),
      context_tokens_(context_tokens),
      batch_(model, options, engine.facts(options.recipe)) {
  QUIRE_CHECK(options.n_sequences == 1 && context_tokens <= options.context_tokens);
}

PrefillResult DeviceSession::prefill(std::span<const int32_t> tokens, const PrefillOptions& options) {
  const size_t n_before = tokens_.size();
  if (n_before + tokens.size() > context_tokens_) {
    throw Error("the prompt has " + std::to_string(n_before + tokens.size()) +
                " tokens, but the context holds only " + std::to_string(context_tokens_));
  }
  PrefillResult result;
  result.n_reused = batch_.n_tokens(0);
  const auto start = Clock::now();
  try {
    tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
    result.interrupted = !ensure_choice(options, result);
  } catch (...) {
    crop(n_before);
    throw;
  }
  if (result.interrupted) crop(n_before);
  result.seconds = std::chrono::duration<double>(Clock::now() - start).count();
  return result;
}

// False: interrupted. Of a few tokens a prompt, of one a step, as on the CPU.
bool DeviceSession::compute_pending(const PrefillOptions& options, PrefillResult& result) {
  std::span<const int32_t> pending = std::span(tokens_).subspan(batch_.n_tokens(0));
  if (pending.empty()) return true;
  batch_.check_ids(pending);
  has_logits_ = false;
  batch_.drop_tokens();
  if (pending.size() > 1 && batch_.n_tokens(0) > 0 && !batch_.gives_rows()) {
    batch_.crop(0, 0);  // nothing can come behind these rows but steps
    pending = tokens_;
    result.n_reused = 0;
  }
  if (draws_) batch_.set_draws(0, n_draws_);
  if (pending.size() == 1 && batch_.n_tokens(0) > 0) {
    batch_.set_token(0, pending[0]);
    batch_.step();
  } else if (!batch_.prefill(0, pending, {options.progress, options.stop_flag})) {
    return false;
  }
  result.n_computed += pending.size();
  has_logits_ = has_choice_ = true;
  return true;
}

bool DeviceSession::ensure_choice(const PrefillOptions& options, PrefillResult& result) {
  if (tokens_.empty()) throw Error("there is nothing to continue: the prompt is empty");
  if (has_choice_ && batch_.n_tokens(0) == tokens_.size()) return true;
  // The logits behind the last token are gone: it is computed once more.
  if (batch_.n_tokens(0) == tokens_.size()) cut(tokens_.size() - 1);
  return compute_pending(options, result);
}

Generation DeviceSession::generate(const GenerateOptions& options, const OnText& on_text) {
  PrefillResult ignored;
  ensure_choice({}, ignored);
  has_choice_ = false;
  Generation result;
  try {
    result = gpu::generate(batch_, engine_.tokenizer(), tokens_.back(), context_tokens_, options, on_text);
  } catch (...) {  // what on_text threw, say: the tokens that were taken are not known
    batch_.drop_tokens();
    cut(tokens_.size());
    throw;
  }
  batch_.drop_tokens();
  tokens_.insert(tokens_.end(), result.tokens.begin(), result.tokens.end());
  n_draws_ += result.tokens.size() + (result.finish == FinishReason::kEnd ? 1 : 0);
  cut(tokens_.size());
  return result;
}

// Rows that cannot be had back are computed anew: all of them.
void DeviceSession::cut(size_t n_tokens) {
  if (n_tokens >= batch_.n_tokens(0)) return;
  has_choice_ = has_logits_ = false;
  batch_.drop_tokens();
  try {
    batch_.crop(0, n_tokens);
  } catch (const Error&) {
    batch_.crop(0, 0);
  }
}

void DeviceSession::crop(size_t n_tokens) {
  if (n_tokens >= tokens_.size()) return;
  tokens_.resize(n_tokens);
  has_choice_ = false;
  cut(n_tokens);
}

void DeviceSession::restore(const SavedSession& saved) {
  QUIRE_CHECK(tokens_.empty());
  SessionOptions options;
  options.recipe = recipe_;
  options.context_tokens = context_tokens_;
  Session session(engine_, options);
  session.restore(saved);
  if (session.cache().n_tokens() > 0)
    batch_.load(0, session.cache(), std::span(session.tokens()).first(session.cache().n_tokens()));
  tokens_ = session.tokens();
  if (session.logits().empty() || session.cache().n_tokens() < tokens_.size()) return;
  if (draws_) batch_.set_draws(0, n_draws_);
  batch_.resume(0, session.logits());
  has_logits_ = has_choice_ = true;
}

// Rows that an interrupted prompt has cost are computed first: a file without them would be less than what it
// replaces.
uint64_t DeviceSession::save(const std::string& path) {
  PrefillResult ignored;
  if (batch_.n_tokens(0) == 0) compute_pending({}, ignored);
  batch_.wait();
  const auto pool = std::make_unique<PagePool>();
  Cache cache = engine_.make_cache(recipe_, *pool);
  if (batch_.n_tokens(0) > 0) batch_.save(0, cache);
  std::vector<float> logits;
  if (has_logits_ && !changes_logits_ && batch_.n_tokens(0) > 0) logits = batch_.logits(0);
  return save_sequence({engine_, cache, tokens_, logits}, path);
}

}  // namespace quire::gpu
