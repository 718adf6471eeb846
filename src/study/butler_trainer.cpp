#include "study/butler_trainer.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <numbers>
#include <utility>

#include "base/error.h"
#include "base/machine_memory.h"
#include "base/memory.h"
#include "engine/butler_file.h"
#include "engine/vocabulary_reader.h"
#include "format/frame.h"
#include "study/butler_memory.h"
#include "study/butler_start.h"
#include "study/chance.h"

namespace quire {
namespace {

// Of what text() means and how a step computes: changed with either.
constexpr const char* kVersion = "version 2 ";

constexpr uint64_t kTrainingSalt = 0x7ea41;
constexpr uint64_t kStartSalt = 0x57a47;
constexpr uint64_t kValidationSalt = 0x7a11d;
constexpr uint64_t kRowSalt = 0x40d5;

// AdamW (Loshchilov and Hutter, "Decoupled weight decay regularization", 2019).
constexpr double kBeta1 = 0.9;
constexpr double kBeta2 = 0.99;
constexpr double kAdamEpsilon = 1e-8;
// The rate that cosine ends at, as a share.
constexpr double kLastRate = 0.02;

ButlerGeometry geometry_of(const Engine& engine, const ButlerTraining& options) {
  ButlerGeometry geometry = butler_geometry(engine.config());
  geometry.stride = options.stride;
  geometry.dim = options.dim;
  geometry.hidden = options.hidden;
  return geometry;
}

bool all_finite(const std::vector<float>& values) {
  return std::all_of(values.begin(), values.end(), [](float value) { return std::isfinite(value); });
}

[[noreturn]] void fail_step(size_t number, const char* what) {
  throw Error("step " + std::to_string(number + 1) + ": the " + what +
              " is not finite, so that the predictor would be lost; a lower learning rate may help");
}

uint64_t hash_of(const Tokens& tokens, uint64_t hash) {
  for (const int32_t token : tokens) hash = (hash ^ static_cast<uint32_t>(token)) * 0x9e3779b97f4a7c15;
  return hash;
}

}  // namespace

std::string ButlerTraining::text() const {
  char text[512];
  std::snprintf(
      text, sizeof text,
      "stride %zu dim %zu hidden %zu seq %zu rows %zu batch %zu updates %zu steps %zu rate %.17g warm-up "
      "%.17g "
      "decay %.17g clip %.17g seed %llu sink %zu local %zu weighted %d start %d of %zu validate %zu of "
      "%zu rows %zu",
      stride, dim, hidden, seq_tokens, n_rows, batch, updates, n_steps, learning_rate, warm_up, weight_decay,
      clip, static_cast<unsigned long long>(seed), mask.sink, mask.local, int{mask.weighted},
      static_cast<int>(start), n_start, validate_every, n_validation, n_validation_rows);
  return text;
}

void check_training(const Engine& engine, const ButlerTraining& o) {
  const auto require = [](bool condition, const std::string& sentence) {
    if (!condition) throw Error(sentence);
  };
  const Geometry geometry = engine.config().geometry();
  require(
      !geometry.has_windows() && geometry.score_softcap == 0,
      "predictors are not trained for models with windows or soft-capped scores: what they imitate is plain "
      "attention to every token");
  require(o.stride > 0 && o.stride < engine.config().n_layers,
          "the stride must be at least 1 and below the model's " + std::to_string(engine.config().n_layers) +
              " layers");
  require(o.dim > 0 && o.dim <= engine.config().head_dim,
          "the predictor's dim must be from 1 to the model's head size, " +
              std::to_string(engine.config().head_dim));
  require(o.hidden > 0 && o.hidden <= 16384, "the predictor's hidden units must be from 1 to 16384");
  require(o.seq_tokens <= engine.config().context_tokens, "sequences of " + std::to_string(o.seq_tokens) +
                                                              " tokens exceed the model's context of " +
                                                              std::to_string(engine.config().context_tokens));
  require(o.seq_tokens >= 2 * (o.mask.sink + o.mask.local) && o.seq_tokens >= 16,
          "sequences must have 16 tokens and twice as many as sinks and local window");
  require(o.n_rows > 0 && o.batch > 0 && o.updates > 0 && o.n_steps > 0 && o.n_validation > 0 &&
              o.n_validation_rows > 0 && o.n_start > 0,
          "rows, batch, updates, steps and sequences must be at least 1");
  require(o.learning_rate > 0 && std::isfinite(o.learning_rate), "the learning rate must be positive");
}

ButlerTrainer::ButlerTrainer(Engine& engine, const ButlerTraining& options, std::vector<Tokens> texts,
                             Tokens validation)
    : engine_(engine),
      options_((check_training(engine, options), options)),
      texts_(std::move(texts)),
      validation_(std::move(validation)),
      begin_(encode_prompt(engine.tokenizer(), "", ControlTokens::kAsText)),
      layout_(geometry_of(engine, options)),
      n_validation_(options.n_validation),
      isa_(Engine::isa()),
      run_([&engine](size_t n, const std::function<void(size_t)>& f) {
        engine.run([&](Worker& worker) {
          worker.share(static_cast<int64_t>(n), 1,
                       [&](int64_t item, int64_t) { f(static_cast<size_t>(item)); });
        });
      }),
      teacher_(engine, layout_.geometry()),
      gradient_(layout_, options.mask, run_) {
  const size_t n_least = options.seq_tokens - begin_.size();
  if (texts_.empty()) throw Error("there is no text to train on");
  for (const Tokens& text : texts_) {
    if (text.size() < n_least) {
      throw Error("a text to train on has " + std::to_string(text.size()) + " tokens; a sequence needs " +
                  std::to_string(n_least));
    }
  }
  if (validation_.size() < n_least) {
    throw Error("the text to validate on has " + std::to_string(validation_.size()) +
                " tokens; a sequence needs " + std::to_string(n_least));
  }
  n_validation_ = std::min(n_validation_, validation_.size() / n_least);  // more would overlap
  check_memory();
}

size_t ButlerTrainer::n_shown_rows() const {
  // Both are at least 1; a sequence has no more rows than tokens.
  if (options_.n_rows >= options_.seq_tokens || options_.updates >= options_.seq_tokens) {
    return options_.seq_tokens;
  }
  return std::min(options_.n_rows * options_.updates, options_.seq_tokens);
}

uint64_t ButlerTrainer::validation_bytes() const {
  const size_t n_rows = std::min(options_.n_validation_rows, options_.seq_tokens);
  return n_validation_ * butler_example_bytes(geometry(), options_.seq_tokens, n_rows);
}

uint64_t ButlerTrainer::needed_bytes() const {
  const ButlerGeometry& g = geometry();
  const size_t n_shown = n_shown_rows();
  const size_t n_rows = std::min(options_.n_rows, n_shown);
  const uint64_t example = butler_example_bytes(g, options_.seq_tokens, n_shown);
  const uint64_t step =
      options_.batch * example + butler_example_bytes(g, 0, n_rows) + butler_gradient_bytes(g, n_rows);
  const uint64_t start = options_.start == ButlerStart::kFitted ? example + butler_fit_bytes(g) : 0;
  return validation_bytes() + butler_optimizer_bytes(g) + butler_teacher_bytes(g, options_.seq_tokens) +
         std::max(step, start);
}

// Memory that runs out while the team works would end the program without a word.
void ButlerTrainer::check_memory() const {
  constexpr uint64_t kMegabyte = 1'000'000;
  const uint64_t there = machine_memory_bytes();
  const uint64_t needed = needed_bytes();
  if (there == 0 || needed + peak_resident_bytes() <= there) return;
  throw Error("the training would take " + std::to_string(needed / kMegabyte) + " MB besides the model, " +
              std::to_string(validation_bytes() / kMegabyte) + " MB of it for " +
              std::to_string(n_validation_) + " sequences of validation; the machine has " +
              std::to_string(there / kMegabyte) + " MB");
}

// What a checkpoint must be of.
std::string ButlerTrainer::settings() const {
  uint64_t hash = hash_of(validation_, 1);
  for (const Tokens& text : texts_) hash = hash_of(text, hash * 3 + text.size());
  char digits[17];
  std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(hash));
  return std::string(kVersion)
      .append(options_.text())
      .append(" text ")
      .append(digits)
      .append(engine_.model().precision() == Precision::kPrecise ? " precise" : "");
}

std::string ButlerTrainer::mark() const {
  uint64_t hash = 1;
  for (const char c : settings()) hash = splitmix64(hash ^ static_cast<unsigned char>(c));
  char digits[17];
  std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(hash));
  return digits;
}

// Sequence `number` of those that a salt names: a stretch of a text, texts by their lengths.
Tokens ButlerTrainer::sequence(uint64_t salt, size_t number) const {
  Random random = random_of(options_.seed, salt, number);
  const size_t n = options_.seq_tokens - begin_.size();
  const Tokens* text = &validation_;
  size_t start = 0;
  if (salt == kValidationSalt) {  // spread evenly
    start = (validation_.size() - n) * number / std::max<size_t>(n_validation_ - 1, 1);
  } else {
    size_t n_starts = 0;
    for (const Tokens& each : texts_) n_starts += each.size() - n + 1;
    start = below(random, n_starts);
    for (text = texts_.data(); start > text->size() - n; ++text) start -= text->size() - n + 1;
  }
  Tokens tokens = begin_;
  const auto from = text->begin() + static_cast<ptrdiff_t>(start);
  tokens.insert(tokens.end(), from, from + static_cast<ptrdiff_t>(n));
  return tokens;
}

// The last token, and of the others half from the last quarter, half from all that have candidates enough.
std::vector<size_t> ButlerTrainer::choose_rows(uint64_t salt, size_t number, size_t n_tokens,
                                               size_t n) const {
  Random random = random_of(options_.seed, salt ^ kRowSalt, number);
  const size_t least =
      std::min(options_.mask.sink + options_.mask.local + std::min<size_t>(n_tokens / 16, 64), n_tokens - 1);
  const size_t late = std::max(least, n_tokens - n_tokens / 4);
  std::vector<size_t> rows = {n_tokens - 1};
  const auto take = [&](size_t first, size_t end, size_t n_wanted) {
    for (const size_t i : choose(random, end - first, std::min(n_wanted, end - first)))
      rows.push_back(first + i);
  };
  const size_t n_late = late < n_tokens - 1 ? std::min((n - 1) / 2, n_tokens - 1 - late) : 0;
  if (n_late > 0) take(late, n_tokens - 1, n_late);
  const size_t early_end = n_late > 0 ? late : n_tokens - 1;
  if (early_end > least) take(least, early_end, n - 1 - n_late);
  std::sort(rows.begin(), rows.end());
  return rows;
}

void ButlerTrainer::show(uint64_t salt, size_t number, ButlerExample<float>& example) const {
  if (poll_) poll_();
  const Tokens tokens = sequence(salt, number);
  const size_t n = salt == kValidationSalt ? options_.n_validation_rows : n_shown_rows();
  teacher_.show(tokens, choose_rows(salt, number, tokens.size(), n), example);
}

void ButlerTrainer::show_validation() const {
  while (validation_examples_.size() < n_validation_) {
    ButlerExample<float> example;
    show(kValidationSalt, validation_examples_.size(), example);
    validation_examples_.push_back(std::move(example));
  }
}

void ButlerTrainer::start(const std::function<void(double share)>& progress) {
  std::vector<float> parameters = options_.start == ButlerStart::kFitted
                                      ? fit(progress)
                                      : layout_.flat(random_butler(layout_.geometry(), options_.seed));
  if (!all_finite(parameters)) {
    throw Error("the start that was fitted to the model is not finite; one at random needs no fit");
  }
  if (is_check_due(0)) show_validation();
  parameters_ = std::move(parameters);
  first_.assign(layout_.size(), 0.0f);
  second_.assign(layout_.size(), 0.0f);
  losses_.clear();
  checks_.clear();
  if (is_check_due(0)) check_now();
}

std::vector<float> ButlerTrainer::fit(const std::function<void(double)>& progress) const {
  ButlerFit fit(layout_.geometry(), options_.mask.sink, run_);
  ButlerExample<float> example;
  const auto each = [&](int round, const auto& add) {
    for (size_t i = 0; i < options_.n_start; ++i) {
      show(kStartSalt, i, example);
      add();
      const double share = static_cast<double>(i + 1) / static_cast<double>(options_.n_start);
      if (progress) progress((round + share) / 2);
    }
  };
  each(0, [&] { fit.add_first(example); });
  fit.solve_first();
  each(1, [&] { fit.add_second(example); });
  fit.solve_second();
  return layout_.flat(fit.weights());
}

double ButlerTrainer::update_rate(size_t update) const {
  const auto n = static_cast<double>(options_.n_steps * options_.updates);
  const double warm = std::max(1.0, std::floor(options_.warm_up * n));
  const auto at = static_cast<double>(update);
  if (at < warm) return options_.learning_rate * (at + 1) / warm;
  const double share = (at - warm) / std::max(1.0, n - warm);
  const double cosine = 0.5 * (1 + std::cos(std::numbers::pi * share));
  return options_.learning_rate * (kLastRate + (1 - kLastRate) * cosine);
}

bool ButlerTrainer::is_check_due(size_t n_steps) const {
  const bool is_turn = options_.validate_every > 0 && n_steps % options_.validate_every == 0;
  return is_turn || n_steps >= options_.n_steps;
}

double ButlerTrainer::step() {
  QUIRE_CHECK(!parameters_.empty() && !is_done());
  const size_t number = n_steps_done();
  // All that can be interrupted or run out of memory comes before the first change.
  examples_.resize(options_.batch);
  for (size_t i = 0; i < options_.batch; ++i) {
    show(kTrainingSalt, number * options_.batch + i, examples_[i]);
  }
  if (is_check_due(number + 1)) show_validation();
  const auto before = std::array{parameters_, first_, second_};
  try {
    losses_.push_back(static_cast<float>(updates()));
  } catch (const Error&) {
    parameters_ = before[0];
    first_ = before[1];
    second_ = before[2];
    throw;
  }
  if (is_check_due(number + 1)) check_now();
  return static_cast<double>(losses_.back());
}

// The mean loss of the step's updates, which it makes.
double ButlerTrainer::updates() {
  const size_t number = n_steps_done();
  const double factor = 1.0 / static_cast<double>(options_.batch);
  ButlerExample<float> part;
  double loss = 0;
  for (size_t u = 0; u < options_.updates; ++u) {
    std::vector<float> gradient(layout_.size(), 0.0f);
    for (ButlerExample<float>& example : examples_) {
      if (u >= example.rows.size()) continue;  // a short sequence has fewer rows than were asked for
      take_rows(example, geometry(), u, options_.updates, part);
      loss += factor * gradient_.add(part, parameters_.data(), factor, gradient.data());
      give_keys_back(example, part);
    }
    if (!std::isfinite(static_cast<float>(loss))) fail_step(number, "loss");
    update(number * options_.updates + u, gradient);
  }
  if (!all_finite(parameters_)) fail_step(number, "update");
  return loss / static_cast<double>(options_.updates);
}

// As a checkpoint keeps it.
void ButlerTrainer::check_now() {
  checks_.push_back(kept_check({losses_.size(), validate(ButlerPooling::kNormalisedSum)}));
}

void ButlerTrainer::update(size_t number, const std::vector<float>& gradient) {
  double squares = 0;
  for (const float value : gradient) squares += static_cast<double>(value) * static_cast<double>(value);
  const double norm = std::sqrt(squares);
  if (!std::isfinite(norm)) fail_step(number / options_.updates, "gradient");
  const auto shrink = static_cast<float>(norm > options_.clip ? options_.clip / norm : 1.0);
  const double rate = update_rate(number);
  const auto count = static_cast<double>(number + 1);
  const auto unbias1 = static_cast<float>(1 / (1 - std::pow(kBeta1, count)));
  const auto unbias2 = static_cast<float>(1 / (1 - std::pow(kBeta2, count)));
  const auto decay = static_cast<float>(rate * options_.weight_decay);
  const auto beta1 = static_cast<float>(kBeta1), beta2 = static_cast<float>(kBeta2);
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const float g = gradient[i] * shrink;
    first_[i] = beta1 * first_[i] + (1 - beta1) * g;
    second_[i] = beta2 * second_[i] + (1 - beta2) * g * g;
    if (!layout_.is_norm(i)) parameters_[i] -= decay * parameters_[i];
    parameters_[i] -= static_cast<float>(rate) * first_[i] * unbias1 /
                      (std::sqrt(second_[i] * unbias2) + static_cast<float>(kAdamEpsilon));
  }
}

ButlerQuality ButlerTrainer::validate(ButlerPooling pooling) const {
  ButlerMeter meter(layout_, options_.mask, pooling, run_);
  show_validation();
  for (const ButlerExample<float>& example : validation_examples_) meter.add(example, parameters_.data());
  return meter.quality();
}

void ButlerTrainer::save(const std::string& path) const {
  save_checkpoint({engine_.fingerprint(), settings(), isa_, parameters_, first_, second_, losses_, checks_},
                  path);
}

void ButlerTrainer::resume(const std::string& path) {
  ButlerCheckpoint checkpoint =
      load_checkpoint(path, engine_.fingerprint(), settings(), layout_.size(), geometry().n_layers);
  const size_t n_done = checkpoint.losses.size();
  std::vector<size_t> due, found;
  for (size_t n = 0; n <= std::min(n_done, options_.n_steps); ++n) {
    if (is_check_due(n)) due.push_back(n);
  }
  for (const ButlerCheck& check : checkpoint.checks) found.push_back(check.step);
  if (n_done > options_.n_steps || found != due) throw Error(path + ": the training's history is damaged");
  parameters_ = std::move(checkpoint.parameters);
  first_ = std::move(checkpoint.first_moments);
  second_ = std::move(checkpoint.second_moments);
  losses_ = std::move(checkpoint.losses);
  checks_ = std::move(checkpoint.checks);
  isa_ = checkpoint.isa;
  const std::string own = Engine::isa();
  const std::string all = std::string("+").append(isa_).append("+");
  if (all.find(std::string("+").append(own).append("+")) == std::string::npos) isa_.append("+").append(own);
}

}  // namespace quire
