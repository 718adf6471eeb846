#include "engine/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <unordered_set>

#include "base/error.h"

namespace quire {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();

std::string number_text(double value) {
  std::string text = std::to_string(value);
  const size_t point = text.find('.');
  if (point != std::string::npos) {
    text.erase(text.find_last_not_of('0') + 1);
    if (text.back() == '.') text.pop_back();
  }
  return text;
}

// Written so that a NaN is refused too.
void check_range(const char* name, double value, double low, double high) {
  if (value >= low && value <= high) return;
  throw Error(std::string(name) + " must be between " + number_text(low) + " and " + number_text(high) +
              ", not " + number_text(value));
}

}  // namespace

void SamplingOptions::check() const {
  check_range("temperature", temperature, 0, 1000);
  check_range("top-k", top_k, 0, std::numeric_limits<int32_t>::max());
  check_range("top-p", top_p, 0, 1);
  check_range("min-p", min_p, 0, 1);
  check_range("the repeat penalty", repeat_penalty, 0.01, 100);
  if (repeat_last_n < -1) {
    throw Error("the number of tokens that the repeat penalty looks back on must be -1 (all) or more, not " +
                std::to_string(repeat_last_n));
  }
}

Sampler::Sampler(const SamplingOptions& options) : options_(options), random_(options.seed) {
  options_.check();
}

int32_t Sampler::sample(std::span<const float> logits, std::span<const int32_t> history) {
  const bool penalty = options_.repeat_penalty != 1.0 && options_.repeat_last_n != 0;
  if (penalty || !options_.banned.empty()) {
    adjusted_.assign(logits.begin(), logits.end());
    if (penalty) penalize(history);
    for (const int32_t id : options_.banned) {
      if (id >= 0 && static_cast<size_t>(id) < adjusted_.size()) adjusted_[static_cast<size_t>(id)] = kNever;
    }
    logits = adjusted_;
  }
  if (options_.temperature == 0) return most_likely(logits);
  collect_candidates(logits);
  compute_probabilities(1.0);
  keep_top_p();
  keep_min_p();
  compute_probabilities(options_.temperature);
  return draw();
}

// Every recent token once, however often it occurred.
void Sampler::penalize(std::span<const int32_t> history) {
  const auto last_n = static_cast<size_t>(options_.repeat_last_n);
  if (options_.repeat_last_n > 0 && history.size() > last_n) history = history.last(last_n);
  const auto penalty = static_cast<float>(options_.repeat_penalty);
  const std::unordered_set<int32_t> recent(history.begin(), history.end());
  for (const int32_t id : recent) {
    if (id < 0 || static_cast<size_t>(id) >= adjusted_.size()) continue;
    float& logit = adjusted_[static_cast<size_t>(id)];
    logit = logit > 0 ? logit / penalty : logit * penalty;
  }
}

int32_t Sampler::most_likely(std::span<const float> logits) const {
  size_t best = logits.size();
  float best_logit = kNever;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (logits[i] > best_logit && std::isfinite(logits[i])) {
      best = i;
      best_logit = logits[i];
    }
  }
  if (best == logits.size()) throw Error("the model gave no finite logit; its weights are damaged");
  return static_cast<int32_t>(best);
}

// The k best are kept in a heap with the worst of them on top: nearly all of the vocabulary fails against it.
void Sampler::collect_candidates(std::span<const float> logits) {
  // A strict order, so that the result does not depend on how the library sorts equals.
  const auto more_likely = [](const Candidate& a, const Candidate& b) {
    return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
  };
  const size_t k = options_.top_k > 0 ? static_cast<size_t>(options_.top_k) : logits.size();
  candidates_.clear();
  for (size_t i = 0; i < logits.size(); ++i) {
    const Candidate candidate{logits[i], static_cast<int32_t>(i)};
    const bool full = candidates_.size() == k;
    if (full && !(candidate.logit > candidates_.front().logit)) continue;  // of equals the lower id was first
    if (!std::isfinite(candidate.logit)) continue;
    if (full) {
      std::pop_heap(candidates_.begin(), candidates_.end(), more_likely);
      candidates_.pop_back();
    }
    candidates_.push_back(candidate);
    if (k < logits.size()) std::push_heap(candidates_.begin(), candidates_.end(), more_likely);
  }
  if (candidates_.empty()) throw Error("the model gave no finite logit; its weights are damaged");
  std::sort(candidates_.begin(), candidates_.end(), more_likely);
}

void Sampler::compute_probabilities(double temperature) {
  probabilities_.resize(candidates_.size());
  const double best = candidates_[0].logit;
  for (size_t i = 0; i < candidates_.size(); ++i) {
    probabilities_[i] = std::exp((static_cast<double>(candidates_[i].logit) - best) / temperature);
  }
}

void Sampler::keep_top_p() {
  if (options_.top_p >= 1) return;
  double total = 0;
  for (const double p : probabilities_) total += p;
  double held = 0;
  for (size_t i = 0; i < probabilities_.size(); ++i) {
    held += probabilities_[i];
    if (held < options_.top_p * total) continue;
    candidates_.resize(i + 1);
    probabilities_.resize(i + 1);
    return;
  }
}

void Sampler::keep_min_p() {
  if (options_.min_p <= 0) return;
  size_t n = 1;  // the best one's share is 1
  while (n < probabilities_.size() && probabilities_[n] >= options_.min_p) ++n;
  candidates_.resize(n);
  probabilities_.resize(n);
}

int32_t Sampler::draw() {
  double total = 0;
  for (const double p : probabilities_) total += p;
  double left = random_.uniform() * total;
  for (size_t i = 0; i < probabilities_.size(); ++i) {
    left -= probabilities_[i];
    if (left < 0) return candidates_[i].id;
  }
  return candidates_.back().id;  // rounding may leave a hair at the end
}

}  // namespace quire
