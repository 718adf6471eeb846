// Trains a predictor (policy/butler.h) from the frozen model it is for.
//
// Everything that chance decides follows from the seed and the number of the step, sums are taken in a fixed
// order, and what a checkpoint holds is all that a step depends on: the same options give the same predictor
// on any number of threads, interrupted and resumed or not.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "policy/butler.h"
#include "study/butler_checkpoint.h"
#include "study/butler_example.h"
#include "study/butler_gradient.h"
#include "study/haystack.h"

namespace quire {

enum class ButlerStart : uint8_t { kFitted, kRandom };

struct ButlerTraining {
  size_t stride = 4;
  size_t dim = 16;
  size_t hidden = 128;
  size_t seq_tokens = 1024;
  size_t batch = 1;  // sequences of a step
  size_t updates =
      1;  // of the weights in a step, each on other rows of the same sequences: showing them costs most
  size_t n_rows = 256;  // of a sequence, for each update
  size_t n_steps = 1000;
  double learning_rate = 3e-3;
  double warm_up = 0.05;  // share of the steps in which the rate rises
  double weight_decay = 0.01;
  double clip = 1.0;  // of the gradient's norm
  uint64_t seed = 0;
  ButlerMask mask = {};
  ButlerStart start = ButlerStart::kFitted;
  size_t n_start = 32;          // sequences that the start is fitted to
  size_t validate_every = 100;  // steps; 0: only at the end
  size_t n_validation = 8;      // sequences; fewer where that many would overlap
  size_t n_validation_rows = 64;

  // All that decides the result, for checkpoints: two that differ are not of one training.
  std::string text() const;
};

// Throws Error for options that cannot be meant, or not for this model.
void check_training(const Engine& engine, const ButlerTraining& options);

class ButlerTrainer {
 public:
  // `texts` to train on and `validation` text, in tokens. Throws Error for options that cannot be meant,
  // texts that are too short, and what exceeds the machine's memory. The engine outlives the trainer.
  ButlerTrainer(Engine& engine, const ButlerTraining& options, std::vector<Tokens> texts, Tokens validation);

  // Called before each sequence that the model is shown. What it throws ends start() or step(), which then
  // have changed nothing.
  void set_poll(std::function<void()> poll) { poll_ = std::move(poll); }

  // Either of these comes first. start() measures the model; `progress` gets the share of that.
  void start(const std::function<void(double share)>& progress = {});
  // Throws Error when the checkpoint is damaged or is of another model, text or options.
  void resume(const std::string& path);
  void save(const std::string& path) const;
  // The instruction sets that have computed what there is, joined by +: the result is that of one alone only
  // where there is one.
  const std::string& isa() const { return isa_; }
  // Options and texts in 16 hexadecimal digits, which say what a finished predictor was trained with.
  std::string mark() const;

  size_t n_steps_done() const { return losses_.size(); }
  bool is_done() const { return n_steps_done() >= options_.n_steps; }
  // Returns the loss, see study/butler_gradient.h, and validates where that is due. Throws Error where loss
  // or gradient are not finite, and then has changed nothing.
  double step();

  const ButlerGeometry& geometry() const { return layout_.geometry(); }
  const std::vector<float>& losses() const { return losses_; }  // [step]
  const std::vector<ButlerCheck>& checks() const { return checks_; }
  // Of the step's first update.
  double learning_rate(size_t step) const { return update_rate(step * options_.updates); }
  // Sequences of a validation, and what they keep in memory.
  size_t n_validation() const { return n_validation_; }
  uint64_t validation_bytes() const;
  // In all, besides the model.
  uint64_t needed_bytes() const;
  ButlerQuality validate(ButlerPooling pooling) const;
  ButlerWeights weights() const { return layout_.weights(parameters_); }

 private:
  std::string settings() const;
  Tokens sequence(uint64_t salt, size_t number) const;
  std::vector<size_t> choose_rows(uint64_t salt, size_t number, size_t n_tokens, size_t n) const;
  size_t n_shown_rows() const;
  void show(uint64_t salt, size_t number, ButlerExample<float>& example) const;
  void show_validation() const;
  void check_memory() const;
  bool is_check_due(size_t n_steps) const;
  std::vector<float> fit(const std::function<void(double)>& progress) const;
  void check_now();
  double updates();
  double update_rate(size_t update) const;
  void update(size_t number, const std::vector<float>& gradient);

  Engine& engine_;
  ButlerTraining options_;
  std::vector<Tokens> texts_;
  Tokens validation_;
  Tokens begin_;  // what a sequence begins with
  ButlerLayout layout_;
  size_t n_validation_;
  std::string isa_;
  std::function<void()> poll_;
  ItemRunner run_;
  mutable ButlerTeacher teacher_;
  std::vector<ButlerExample<float>> examples_;                     // of the step
  mutable std::vector<ButlerExample<float>> validation_examples_;  // kept from the first validation on
  ButlerGradient<float> gradient_;
  std::vector<float> parameters_, first_, second_;  // and AdamW's moments
  std::vector<float> losses_;
  std::vector<ButlerCheck> checks_;
};

}  // namespace quire
