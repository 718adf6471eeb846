#include "study/butler_trainer.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numbers>
#include <utility>

#include "base/atomic_file.h"
#include "base/error.h"
#include "engine/butler_file.h"
#include "engine/vocabulary_reader.h"
#include "study/butler_start.h"
#include "study/chance.h"

namespace quire {
namespace {

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

void check(const Engine& engine, const ButlerTraining& o) {
  const auto require = [](bool condition, const std::string& sentence) {
    if (!condition) throw Error(sentence);
  };
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

uint64_t hash_of(const Tokens& tokens, uint64_t hash) {
  for (const int32_t token : tokens) hash = (hash ^ static_cast<uint32_t>(token)) * 0x9e3779b97f4a7c15;
  return hash;
}

constexpr size_t kScoreNumbers = 4 * kButlerBudgets.size();

std::vector<float> numbers_of(const std::vector<ButlerCheck>& checks) {
  std::vector<float> numbers;
  for (const ButlerCheck& each : checks) {
    numbers.push_back(static_cast<float>(each.step));
    numbers.push_back(static_cast<float>(each.quality.n_rows));
    for (const auto& layer : each.quality.layers) {
      for (const ButlerScore& score : layer) {
        for (const double value : {score.recall, score.mass, score.oracle_mass, score.always_mass}) {
          numbers.push_back(static_cast<float>(value));
        }
      }
    }
  }
  return numbers;
}

std::vector<ButlerCheck> checks_of(const std::vector<float>& numbers, size_t n_layers) {
  std::vector<ButlerCheck> checks;
  for (auto at = numbers.begin(); at != numbers.end();) {
    ButlerCheck& check = checks.emplace_back();
    check.step = static_cast<size_t>(*at++);
    check.quality.n_rows = static_cast<size_t>(*at++);
    check.quality.layers.resize(n_layers);
    for (auto& layer : check.quality.layers) {
      for (ButlerScore& score : layer) {
        for (double* value : {&score.recall, &score.mass, &score.oracle_mass, &score.always_mass})
          *value = double{*at++};
      }
    }
  }
  return checks;
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

ButlerTrainer::ButlerTrainer(Engine& engine, const ButlerTraining& options, std::vector<Tokens> texts,
                             Tokens validation)
    : engine_(engine),
      options_((check(engine, options), options)),
      texts_(std::move(texts)),
      validation_(std::move(validation)),
      begin_(encode_prompt(engine.tokenizer(), "", ControlTokens::kAsText)),
      layout_(geometry_of(engine, options)),
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
}

// What a checkpoint must be of.
std::string ButlerTrainer::settings() const {
  uint64_t hash = hash_of(validation_, 1);
  for (const Tokens& text : texts_) hash = hash_of(text, hash * 3 + text.size());
  char digits[17];
  std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(hash));
  return options_.text().append(" text ").append(digits).append(
      engine_.model().precision() == Precision::kPrecise ? " precise" : "");
}

// Sequence `number` of those that a salt names: a stretch of a text, texts by their lengths.
Tokens ButlerTrainer::sequence(uint64_t salt, size_t number) const {
  Random random = random_of(options_.seed, salt, number);
  const size_t n = options_.seq_tokens - begin_.size();
  const Tokens* text = &validation_;
  size_t start = 0;
  if (salt == kValidationSalt) {  // spread evenly
    start = (validation_.size() - n) * number / std::max<size_t>(options_.n_validation - 1, 1);
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
  const Tokens tokens = sequence(salt, number);
  const size_t n = salt == kValidationSalt ? options_.n_validation_rows : options_.n_rows * options_.updates;
  teacher_.show(tokens, choose_rows(salt, number, tokens.size(), n), example);
}

void ButlerTrainer::start(const std::function<void(double share)>& progress) {
  parameters_ = layout_.flat(random_butler(layout_.geometry(), options_.seed));
  if (options_.start == ButlerStart::kFitted) fit(progress);
  first_.assign(layout_.size(), 0.0f);
  second_.assign(layout_.size(), 0.0f);
  losses_.clear();
  checks_.clear();
  if (options_.validate_every > 0) check_now();
}

void ButlerTrainer::fit(const std::function<void(double)>& progress) {
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
  parameters_ = layout_.flat(fit.weights());
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

double ButlerTrainer::step() {
  QUIRE_CHECK(!parameters_.empty() && !is_done());
  const size_t number = n_steps_done();
  examples_.resize(options_.batch);
  for (size_t i = 0; i < options_.batch; ++i) {
    show(kTrainingSalt, number * options_.batch + i, examples_[i]);
  }
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
    update(number * options_.updates + u, gradient);
  }
  losses_.push_back(static_cast<float>(loss / static_cast<double>(options_.updates)));
  const bool due = options_.validate_every > 0 && losses_.size() % options_.validate_every == 0;
  if (due || is_done()) check_now();
  return static_cast<double>(losses_.back());
}

// As numbers that a checkpoint keeps whole.
void ButlerTrainer::check_now() {
  checks_.push_back({losses_.size(), validate(ButlerPooling::kNormalisedSum)});
  checks_ = checks_of(numbers_of(checks_), geometry().n_layers - 1);
}

void ButlerTrainer::update(size_t number, const std::vector<float>& gradient) {
  double squares = 0;
  for (const float value : gradient) squares += static_cast<double>(value) * static_cast<double>(value);
  const double norm = std::sqrt(squares);
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
  while (validation_examples_.size() < options_.n_validation) {
    const size_t number = validation_examples_.size();
    show(kValidationSalt, number, validation_examples_.emplace_back());
  }
  for (const ButlerExample<float>& example : validation_examples_) meter.add(example, parameters_.data());
  return meter.quality();
}

void ButlerTrainer::save(const std::string& path) const {
  SafetensorsWriter writer;
  writer.add_text("format", "quire.butler-training");
  writer.add_text("model", engine_.fingerprint());
  writer.add_text("settings", settings());
  const std::vector<float> checks = numbers_of(checks_);
  writer.add("parameters", {layout_.size()}, parameters_, SafetensorsType::kF32);
  writer.add("first_moments", {layout_.size()}, first_, SafetensorsType::kF32);
  writer.add("second_moments", {layout_.size()}, second_, SafetensorsType::kF32);
  writer.add("losses", {losses_.size()}, losses_, SafetensorsType::kF32);
  writer.add("checks", {checks.size()}, checks, SafetensorsType::kF32);
  write_file_atomically(path, writer.bytes());
}

void ButlerTrainer::resume(const std::string& path) {
  const SafetensorsFile file = SafetensorsFile::open(path);
  const auto text = [&](const char* key) {
    const auto found = file.metadata().find(key);
    return found == file.metadata().end() ? std::string() : found->second;
  };
  if (text("format") != "quire.butler-training") throw Error(path + ": this is no checkpoint of a training");
  if (text("model") != engine_.fingerprint()) throw Error(path + ": the training is of another model");
  if (text("settings") != settings()) {
    throw Error(path + ": the training had other options or texts: " + text("settings").substr(0, 400));
  }
  const auto length = [&](const char* name) -> uint64_t {
    const Safetensor* tensor = file.find(name);
    return tensor == nullptr ? 0 : tensor->n_values;
  };
  const std::array<uint64_t, 1> all = {layout_.size()}, n_losses = {length("losses")},
                                n_checks = {length("checks")};
  const size_t per_check = 2 + (geometry().n_layers - 1) * kScoreNumbers;
  if (n_losses[0] > options_.n_steps || n_checks[0] % per_check != 0) {
    throw Error(path + ": the training's history is damaged");
  }
  parameters_ = file.read("parameters", all);
  first_ = file.read("first_moments", all);
  second_ = file.read("second_moments", all);
  losses_ = file.read("losses", n_losses);
  const std::vector<float> checks = file.read("checks", n_checks);
  for (const float value : checks) {
    if (!(value >= 0 && value < 1e9f)) throw Error(path + ": the training's history is damaged");
  }
  checks_ = checks_of(checks, geometry().n_layers - 1);
}

}  // namespace quire
